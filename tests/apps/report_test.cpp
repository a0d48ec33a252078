// The progress line as shown by a terminal.

#include "run/report.hpp"

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using calm::progress;
using calm::apps::run_report;
using calm::test::has;

namespace {

// Makes standard error a terminal with this many columns, until the end of the scope.
class terminal {
public:
    terminal(unsigned columns, char const* kind) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
        BOOST_REQUIRE(master_ >= 0);
        BOOST_REQUIRE(::grantpt(master_) == 0);
        BOOST_REQUIRE(::unlockpt(master_) == 0);
        resize(columns);
        auto const* const before = std::getenv("TERM");
        kind_before_ = before != nullptr ? before : "";
        ::setenv("TERM", kind, 1);
        int const end = ::open(::ptsname(master_), O_RDWR | O_NOCTTY | O_CLOEXEC);
        ::dup2(end, STDERR_FILENO);
        ::close(end);
    }
    terminal(terminal const&) = delete;
    terminal& operator=(terminal const&) = delete;
    ~terminal() {
        ::dup2(own_, STDERR_FILENO);
        ::close(own_);
        ::close(master_);
        ::setenv("TERM", kind_before_.c_str(), 1);
    }
    void resize(unsigned columns) {
        struct winsize size {};
        size.ws_row = 24;
        size.ws_col = static_cast<unsigned short>(columns);
        BOOST_REQUIRE(::ioctl(master_, TIOCSWINSZ, &size) == 0);
    }
    // The output since the last call.
    std::string written() const {
        std::string all;
        char some[4096];
        for (struct pollfd one{master_, POLLIN, 0}; ::poll(&one, 1, 50) == 1;) {
            auto const count = ::read(master_, some, sizeof some);
            if (count <= 0) break;
            all.append(some, static_cast<std::size_t>(count));
        }
        return all;
    }

private:
    int own_ = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    int master_;
    std::string kind_before_;
};

progress at(calm::index_t step, double seconds) {
    progress p;
    p.step = step;
    p.seconds = seconds;
    p.loss = 5.4321;
    p.cross_entropy = 5.1;
    p.kl = 12.3;
    p.posterior_std = 0.25;
    p.gradient_norm = 1.5;
    p.learning_rate = 1e-3;
    p.tokens_per_second = 12'345;
    p.share_of_peak = 0.28;
    p.memory = 123'000'000;
    p.seconds_left = 200;
    return p;
}

// The non-empty parts of a text between any of the given characters.
std::vector<std::string> parts_of(std::string_view text, char const* ends) {
    std::vector<std::string> all;
    while (!text.empty()) {
        auto const end = std::min(text.find_first_of(ends), text.size());
        if (end > 0) all.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

}  // namespace

// A line as wide as the terminal would wrap, and leave a line behind at each refresh. Values that do not fit are left
// out whole.
BOOST_AUTO_TEST_CASE(progress_is_one_line_of_any_terminal) {
    calm::test::temporary_folder const folder;
    std::string const few = "step 20     loss   5.4321  3:20 left", some = few + "  12.3k tokens/s  ce 5.1000, kl 12.3";
    for (auto const& [columns, shown] : std::vector<std::pair<unsigned, std::string>>{
             {12, "step 20    "},
             {36, "step 20     loss   5.4321"},
             {40, few},
             {80, some},
             {200, some + ", posterior std 0.250  gradient 1.50  learning rate 1.0e-03  28 % of peak  123.0 MB"}}) {
        terminal const screen(columns, "xterm");
        run_report report(folder.path(""));
        for (int i = 0; i < 20; ++i) report.step(at(i, i));
        auto const said = screen.written();
        BOOST_TEST(!has(said, "\n"), said);
        auto const lines = parts_of(said, "\r");
        BOOST_TEST(lines.size() == 20U);
        for (auto const& line : lines) BOOST_TEST(line.size() < columns, line);
        BOOST_TEST(lines.back() == shown);
        report.print_line("a sentence");
        auto const after = screen.written();
        BOOST_TEST(has(after, "\ra sentence\r\n"), after);
        for (auto const& line : parts_of(after, "\r\n")) BOOST_TEST(line.size() < columns, line);
    }
}

BOOST_AUTO_TEST_CASE(progress_follows_the_width_of_its_terminal) {
    calm::test::temporary_folder const folder;
    terminal screen(200, "xterm");
    run_report report(folder.path(""));
    report.step(at(0, 0));
    BOOST_TEST(screen.written().size() > 120U);
    screen.resize(50);
    report.step(at(1, 1));
    for (auto const& line : parts_of(screen.written(), "\r"))
        BOOST_TEST(line == "step 2      loss   5.4321  3:20 left" + std::string(13, ' '));
    screen.resize(120);
    report.step(at(2, 2));
    BOOST_TEST(parts_of(screen.written(), "\r").back().size() > 80U);
    screen.resize(0);  // unknown width
    report.step(at(3, 3));
    BOOST_TEST(parts_of(screen.written(), "\r").back().size() == 79U);
}

BOOST_AUTO_TEST_CASE(a_terminal_that_cannot_move_its_cursor_gets_plain_lines) {
    calm::test::temporary_folder const folder;
    for (auto const* const kind : {"dumb", ""}) {
        terminal const screen(80, kind);
        run_report report(folder.path(""));
        for (int i = 0; i < 20; ++i) report.step(at(i, i));
        report.print_line("a sentence");
        auto const said = screen.written();
        auto const lines = parts_of(said, "\r\n");
        BOOST_TEST(lines.size() == 6U, said);  // after 0, 1, 6, 11 and 16 seconds
        BOOST_TEST(lines.back() == "a sentence");
        for (auto const& line : lines) BOOST_TEST(line.size() < 80U, line);
        for (std::size_t at = said.find('\r'); at != std::string::npos; at = said.find('\r', at + 1))
            BOOST_TEST(said.substr(at, 2) == "\r\n");  // line ends added by the terminal
    }
}
