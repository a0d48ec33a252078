#pragma once
// What a run tells while it goes: a line of progress on standard error, metrics.jsonl in the model's directory.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "calm/runs/metrics_log.hpp"
#include "calm/train/loop.hpp"

namespace calm::apps {

// A terminal has one line that is written over, cut to its width; a pipe, or a terminal that cannot move its cursor
// (TERM=dumb, or not set), gets a plain line every few seconds.
class run_report {
public:
    // Says and writes nothing: that of a rank which is not the first.
    run_report();
    // Writes <directory>/metrics.jsonl after the first so many bytes of it. Throws errc::storage.
    explicit run_report(std::string const& directory, std::uint64_t keep = 0);
    ~run_report();
    run_report(run_report const&) = delete;
    run_report& operator=(run_report const&) = delete;

    void plan(memory_plan const& plan, double machine_peak);
    void step(progress const& now);
    // A step that was left out.
    void skipped(progress const& now, error const& why);
    // A sentence that stays on the screen, on one line whatever it names; or the lines of a table.
    void say(std::string_view sentence);
    void say_lines(std::string_view text);
    // A line of metrics.jsonl of its own, e.g. of an evaluation.
    void log(std::initializer_list<metric> metrics) {
        if (log_) log_->write(metrics);
    }
    // True once: for what is said once a run.
    bool first_time() { return std::exchange(first_time_, false); }
    // How many bytes metrics.jsonl has.
    [[nodiscard]] std::uint64_t bytes() const { return log_ ? log_->bytes() : 0; }
    // metrics.jsonl is on the disk.
    void flush() const {
        if (log_) log_->flush();
    }
    // Logs the last step, if it is not yet.
    void log_now();
    // Shows and logs the last step, if it is not yet, and says how many steps were left out.
    void finish();

private:
    void show();
    void log_last();
    void clear_line();

    std::optional<metrics_log> log_;
    bool terminal_;
    progress last_;
    bool shown_ = true;
    bool logged_ = true;
    bool first_time_ = true;
    double next_show_ = 0;
    std::size_t width_ = 0;  // of what stands on the terminal's line
};

// The file of a run's numbers.
inline constexpr char const* metrics_file = "metrics.jsonl";

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string formatted(char const* format, ...);
// "12 s", "3:20", "1:02:03"; "412 B", "3.1 MB".
std::string duration_text(double seconds);
std::string bytes_text(std::size_t bytes);
// "1,234,567".
std::string grouped(index_t n);

}  // namespace calm::apps
