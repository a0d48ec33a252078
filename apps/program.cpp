#include "program.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "calm/tensor/error.hpp"
#include "calm/tensor/quoted.hpp"

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
        tell_lines(sentence(name, ": ", std::string_view(problem.what())));
        return static_cast<int>(problem.code());
    } catch (std::bad_alloc const&) {
        std::fprintf(stderr, "%s: there is not enough memory; use smaller batches, shorter blocks or less text\n",
                     name);
        return static_cast<int>(errc::memory);
    } catch (std::exception const& problem) {
        tell(sentence(name, ": unexpected error: ", std::string_view(problem.what())));
        return 1;
    }
}

void tell(std::string_view sentence) {
    std::fprintf(stderr, "%s\n", printable_line(sentence).c_str());
}

void tell_lines(std::string_view text) {
    for (auto const& line : lines_of(text)) tell(line);
}

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        auto const end = std::min(text.find('\n'), text.size());
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

void note_signals() {
    std::signal(SIGINT, note_signal);
    std::signal(SIGTERM, note_signal);
}

int noted_signal() {
    return signal_that_came;
}

}  // namespace calm::apps
