#include "run/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "calm/io/detail/whole_directory.hpp"
#include "processor.hpp"
#include "program.hpp"

namespace calm::apps {

std::string formatted(char const* format, ...) {
    char text[512];
    std::va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return text;
}

std::string duration_text(double seconds) {
    if (!std::isfinite(seconds)) return "?";
    auto const s = static_cast<long>(std::lround(seconds));
    if (s < 60) return formatted("%ld s", s);
    if (s < 3600) return formatted("%ld:%02ld", s / 60, s % 60);
    return formatted("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

std::string bytes_text(std::size_t bytes) {
    auto const b = static_cast<double>(bytes);
    if (b < 1e3) return formatted("%zu B", bytes);
    if (b < 1e6) return formatted("%.1f kB", b / 1e3);
    if (b < 1e9) return formatted("%.1f MB", b / 1e6);
    return formatted("%.2f GB", b / 1e9);
}

std::string grouped(index_t n) {
    std::string text = std::to_string(n);
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
        text.insert(static_cast<std::size_t>(at), ",");
    return text;
}

namespace {

std::string tokens_text(double rate) {
    return rate < 1e4   ? formatted("%.0f", rate)
           : rate < 1e6 ? formatted("%.1fk", rate / 1e3)
                        : formatted("%.2fM", rate / 1e6);
}

// The values of the line, the most important ones first.
std::vector<std::string> values_of(progress const& p) {
    std::vector<std::string> all{formatted("step %-6lld", static_cast<long long>(p.step + 1)),
                                 formatted(" loss %8.4f", p.loss)};
    if (p.first_phase) all.emplace_back(" (patch level)");
    all.push_back("  " + duration_text(p.seconds_left) + " left");
    all.push_back("  " + tokens_text(p.tokens_per_second) + " tokens/s");
    if (std::isfinite(p.cross_entropy)) {
        all.push_back(formatted("  ce %.4f", p.cross_entropy));
        all.push_back(formatted(", kl %.1f", p.kl));
        all.push_back(formatted(", posterior std %.3f", p.posterior_std));
    }
    all.push_back(formatted("  gradient %.2f", p.gradient_norm));
    all.push_back(formatted("  learning rate %.1e", p.learning_rate));
    if (std::isfinite(p.share_of_peak)) all.push_back(formatted("  %.0f %% of peak", 100 * p.share_of_peak));
    all.push_back("  " + bytes_text(p.memory));
    return all;
}

// As many of the first values as fit into `most` columns, each whole.
std::string line_of(progress const& p, std::size_t most) {
    std::string line;
    for (auto const& value : values_of(p)) {
        if (line.size() + value.size() > most) break;
        line += value;
    }
    return line;
}

}  // namespace

run_report::run_report() : terminal_(false) {}

run_report::run_report(std::string const& directory, std::uint64_t keep) :
    log_(std::in_place, in_directory(directory, metrics_file), keep), terminal_(terminal_line::is_possible()) {}

// Ends the progress line, so that an error message starts on a new line.
run_report::~run_report() {
    line_.end();
}

void run_report::plan(memory_plan const& plan, double machine_peak) {
    std::string table = "memory\n";
    for (auto const& part : plan.parts)
        table += formatted("  %-18s %10s\n", part.name.c_str(), bytes_text(part.bytes).c_str());
    table += formatted("  %-18s %10s", "total", bytes_text(plan.total()).c_str());
    print_lines(table);
    if (machine_peak > 0)
        print_line(formatted("peak of this machine, of which shares are given: %.0f GFLOP/s with %s",
                             machine_peak / 1e9, instructions));
}

void run_report::step(progress const& now) {
    last_ = now;
    shown_ = logged_ = false;
    if (now.step < 10 || (now.step + 1) % 10 == 0) log_last();
    if (now.seconds >= next_show_) show();
}

void run_report::skipped(progress const& now, error const& why) {
    std::string_view const reason = why.what();
    log({{"step", now.step + 1}, {"skipped", now.skipped}, {"why", reason}});
    print_line(formatted("skipped a step, number %lld of this run: ", static_cast<long long>(now.skipped)) +
               std::string(reason));
}

void run_report::log_last() {
    auto const& p = last_;
    log({{"step", p.step + 1},
         {"tokens", p.tokens},
         {"seconds", p.seconds},
         {"loss", p.loss},
         {"cross_entropy", p.cross_entropy},
         {"kl", p.kl},
         {"posterior_std", p.posterior_std},
         {"gradient_norm", p.gradient_norm},
         {"learning_rate", p.learning_rate},
         {"tokens_per_second", p.tokens_per_second},
         {"share_of_peak", p.share_of_peak},
         {"memory", static_cast<index_t>(p.memory)},
         {"skipped", p.skipped}});
    logged_ = true;
}

void run_report::show() {
    shown_ = true;
    if (!log_) return;
    auto const line = line_of(last_, terminal_columns());
    if (terminal_)
        line_.show(line);
    else
        std::fprintf(stderr, "%s\n", line.c_str());
    next_show_ = last_.seconds + (terminal_ ? 0.2 : last_.step < 1 ? 1.0 : 5.0);
}

void run_report::print_line(std::string_view sentence) {
    line_.clear();
    log_line(sentence);
}

void run_report::print_lines(std::string_view text) {
    line_.clear();
    log_lines(text);
}

void run_report::log_now() {
    if (!logged_) log_last();
}

void run_report::finish() {
    log_now();
    if (!shown_) show();
    line_.end();
    if (last_.skipped > 0)
        print_line(formatted("%lld steps were skipped: their loss or gradients were not finite",
                             static_cast<long long>(last_.skipped)));
}

}  // namespace calm::apps
