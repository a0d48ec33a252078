#include "run/terminal_line.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace calm::apps {

std::size_t terminal_columns() {
    if (::isatty(STDERR_FILENO) != 1) return std::string::npos;
    struct winsize size {};
    bool const known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col - 1U : 79U;
}

bool terminal_line::is_possible() {
    auto const* const kind = std::getenv("TERM");
    return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

void terminal_line::show(std::string_view text) {
    auto const most = terminal_columns();
    std::string const shown(text.substr(0, most));
    std::fprintf(stderr, "\r%-*s", static_cast<int>(std::min(width_, most)), shown.c_str());
    std::fflush(stderr);
    width_ = shown.size();
}

void terminal_line::clear() {
    if (width_ > 0) std::fprintf(stderr, "\r%-*s\r", static_cast<int>(std::min(width_, terminal_columns())), "");
    width_ = 0;
}

void terminal_line::end() {
    if (width_ > 0) std::fputc('\n', stderr);
    width_ = 0;
}

}  // namespace calm::apps
