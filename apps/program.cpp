#include "program.hpp"

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "calm/tensor/error.hpp"

namespace calm::apps {

namespace {

volatile std::sig_atomic_t signal_that_came = 0;

extern "C" void note_signal(int number) {
    signal_that_came = number;
    std::signal(number, SIG_DFL);
}

}  // namespace

int run_program(char const* name, std::function<int()> const& body) {
    try {
        return body();
    } catch (error const& problem) {
        std::fprintf(stderr, "%s: %s\n", name, problem.what());
        return static_cast<int>(problem.code());
    } catch (std::bad_alloc const&) {
        std::fprintf(stderr, "%s: there is not enough memory; use smaller batches, shorter blocks or less text\n",
                     name);
        return static_cast<int>(errc::memory);
    } catch (std::exception const& problem) {
        std::fprintf(stderr, "%s: unexpected error: %s\n", name, problem.what());
        return 1;
    }
}

void note_signals() {
    std::signal(SIGINT, note_signal);
    std::signal(SIGTERM, note_signal);
}

int noted_signal() {
    return signal_that_came;
}

}  // namespace calm::apps
