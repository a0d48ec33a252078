#pragma once
// Reports a run's progress on standard error, and logs it in metrics.jsonl of the model's directory.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "calm/runs/metrics_log.hpp"
#include "calm/train/loop.hpp"
#include "run/terminal_line.hpp"

namespace calm::apps {

// On a terminal one line is overwritten. A pipe, or a terminal that cannot move its cursor (TERM=dumb or unset), gets a
// plain line every few seconds. A terminal that is too narrow for all values is shown the most important ones.
class run_report {
public:
    // Reports and logs nothing: for ranks other than 0.
    run_report();
    // Writes <directory>/metrics.jsonl after its first `keep` bytes. Throws errc::storage.
    explicit run_report(std::string const& directory, std::uint64_t keep = 0);
    ~run_report();
    run_report(run_report const&) = delete;
    run_report& operator=(run_report const&) = delete;

    void plan(memory_plan const& plan, double machine_peak);
    void step(progress const& now);
    // A skipped step.
    void skipped(progress const& now, error const& why);
    // Prints a message that stays on the screen, on one line whatever it contains, or the lines of a table.
    void print_line(std::string_view sentence);
    void print_lines(std::string_view text);
    // Adds a line to metrics.jsonl, such as an evaluation.
    void log(std::initializer_list<metric> metrics) {
        if (log_) log_->write(metrics);
    }
    // True on the first call, for messages printed once per run.
    bool first_time() { return std::exchange(first_time_, false); }
    // Size of metrics.jsonl in bytes.
    [[nodiscard]] std::uint64_t bytes() const { return log_ ? log_->bytes() : 0; }
    // Flushes metrics.jsonl to disk.
    void flush() const {
        if (log_) log_->flush();
    }
    // Logs the last step unless already logged.
    void log_now();
    // Prints and logs the last step unless already done, and reports the number of skipped steps.
    void finish();

private:
    void show();
    void log_last();

    std::optional<metrics_log> log_;
    bool terminal_;  // steps overwrite its line
    terminal_line line_;
    progress last_;
    bool shown_ = true;
    bool logged_ = true;
    bool first_time_ = true;
    double next_show_ = 0;
};

// The file of a run's metrics.
inline constexpr char const* metrics_file = "metrics.jsonl";

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string formatted(char const* format, ...);
// "12 s", "3:20", "1:02:03"; "412 B", "3.1 MB".
std::string duration_text(double seconds);
std::string bytes_text(std::size_t bytes);
// "1,234,567".
std::string grouped(index_t n);

}  // namespace calm::apps
