#include "program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"

namespace calm::apps {

namespace {

volatile std::sig_atomic_t signal_that_came = 0;
volatile std::sig_atomic_t holds_tongue = 0;
volatile std::sig_atomic_t on_terminal = 0;
char const* answer_to_signal = "";  // set before the handler is

// Opens /dev/null on each closed standard stream, so that the next opened file does not get its number. The access mode
// is the opposite one, so that using the stream still fails.
void hold_standard_streams() {
    for (int const fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

// From here to end_by_missing_page: only async-signal-safe calls.

void write_raw(std::string_view text) {
    while (!text.empty()) {
        auto const written = ::write(STDERR_FILENO, text.data(), text.size());
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

extern "C" void note_signal(int number) {
    int const before = errno;
    bool const is_first = signal_that_came == 0;
    if (is_first) signal_that_came = number;
    if (number == SIGPIPE) std::signal(number, SIG_IGN);
    if (number == SIGINT || number == SIGTERM) {
        std::signal(number, SIG_DFL);
        if (is_first && holds_tongue == 0) {
            if (on_terminal != 0) write_raw("\n");
            write_raw(answer_to_signal);
        }
    }
    errno = before;
}

// Whether a line of /proc/self/maps ("7f00-7f10 r--p 00000000 08:01 42    /path") describes the mapping that contains
// an address.
bool covers(std::string_view line, std::uintptr_t address) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    auto const* const last = line.data() + line.size();
    auto const first = std::from_chars(line.data(), last, begin, 16);
    if (first.ec != std::errc{} || first.ptr == last) return false;
    return std::from_chars(first.ptr + 1, last, end, 16).ec == std::errc{} && begin <= address && address < end;
}

// Calls f(line) for the lines of a file until it returns true. Returns whether it did. Reads without allocation.
template <class F> bool any_line(char const* path, F const& f) {
    int const fd = ::open(path, O_RDONLY | O_CLOEXEC);
    std::array<char, 8192> text;
    std::size_t filled = 0;
    bool found = false;
    while (fd >= 0 && !found) {
        auto const count = ::read(fd, text.data() + filled, text.size() - filled);
        if (count <= 0) break;
        filled += static_cast<std::size_t>(count);
        auto* begin = text.data();
        auto* const end = text.data() + filled;
        for (auto* line_end = begin; !found && (line_end = std::find(begin, end, '\n')) != end; begin = line_end + 1)
            found = f(std::string_view(begin, static_cast<std::size_t>(line_end - begin)));
        filled = static_cast<std::size_t>(std::copy(begin, end, text.data()) - text.data());
    }
    if (fd >= 0) ::close(fd);
    return found;
}

std::string program_name;  // as messages call it
std::string path_of_calm;  // empty unless the programs are its subcommands

// SIGBUS handler: a mapped page is no longer in its file, because the file was truncated or the disk fails.
extern "C" void end_by_missing_page(int, siginfo_t* info, void*) {
    auto const address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    bool const of_file = any_line("/proc/self/maps", [&](std::string_view line) {
        auto const path = std::min(line.find('/'), line.size());
        if (!covers(line, address) || path == line.size()) return false;
        write_raw(program_name);
        write_raw(": ");
        for (char const& c : line.substr(path)) write_raw(c > 0x20 && c < 0x7f ? std::string_view(&c, 1) : "?");
        write_raw(
            ": can no longer be read: the file was shortened while it was in use, or its disk fails; put it back and "
            "give the same command again\n");
        return true;
    });
    if (of_file) ::_exit(static_cast<int>(errc::storage));
    std::signal(SIGBUS, SIG_DFL);  // not a mapped file: default action
}

void note_missing_pages() {
    struct sigaction action {};
    action.sa_sigaction = end_by_missing_page;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

void run_as_subcommands(std::string path) {
    path_of_calm = std::move(path);
}

std::string called(std::string const& program) {
    return path_of_calm.empty() ? program : "calm " + program;
}

std::vector<std::string> words_that_start(std::string const& program) {
    return path_of_calm.empty() ? std::vector{program} : std::vector{path_of_calm, program};
}

failure failure_now() {
    try {
        throw;
    } catch (error const& problem) {
        return {static_cast<int>(problem.code()), problem.what()};
    } catch (reader_gone const&) {
        return {128 + SIGPIPE, ""};
    } catch (std::bad_alloc const&) {
        return {static_cast<int>(errc::memory),
                "there is not enough memory; use smaller batches, shorter blocks or less text"};
    } catch (std::filesystem::filesystem_error const& problem) {
        return {static_cast<int>(errc::storage), sentence(problem.path1().native(), ": ", problem.code().message())};
    } catch (std::exception const& problem) {
        return {1, sentence("unexpected error: ", std::string_view(problem.what()))};
    }
}

int run_program(char const* name, std::function<int()> const& body) {
    program_name = called(name);
    hold_standard_streams();
    note_missing_pages();
    std::signal(SIGXFSZ, SIG_IGN);  // writing then fails with EFBIG and is reported as an error
    try {
        return body();
    } catch (...) {
        auto const what = failure_now();
        if (!what.text.empty()) log_lines(sentence(program_name, ": ", what.text));
        return what.status;
    }
}

void mute(bool on) {
    holds_tongue = on ? 1 : 0;
}

void log_line(std::string_view sentence) {
    if (holds_tongue != 0) return;
    std::fprintf(stderr, "%s\n", printable_line(sentence).c_str());
}

void log_lines(std::string_view text) {
    for (auto const& line : lines_of(text)) log_line(line);
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

std::string joined(std::vector<std::string> const& parts, std::string_view between) {
    std::string all;
    for (auto const& part : parts) (all += all.empty() ? "" : between) += part;
    return all;
}

void note_signals(char const* answer) {
    answer_to_signal = answer;
    on_terminal = ::isatty(STDERR_FILENO) == 1 ? 1 : 0;
    for (int const number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
        struct sigaction before {};
        bool const ignored = ::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored || number == SIGINT || number == SIGTERM) std::signal(number, note_signal);
    }
}

int noted_signal() {
    return signal_that_came;
}

void take_signal(int number) {
    if (signal_that_came == 0) signal_that_came = number;
}

}  // namespace calm::apps
