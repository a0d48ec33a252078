#pragma once
// What a run tells while it goes: a line of progress on standard error, metrics.jsonl in the model's directory.

#include <cstdint>
#include <string>

#include "calm/train/loop.hpp"

namespace calm::apps {

// A terminal has one line that is written over; a pipe gets a plain line every few seconds.
class run_report {
public:
    // Writes <directory>/metrics.jsonl. Throws errc::storage.
    explicit run_report(std::string const& directory);
    ~run_report();
    run_report(run_report const&) = delete;
    run_report& operator=(run_report const&) = delete;

    void plan(memory_plan const& plan, double machine_peak);
    void step(progress const& now);
    // A sentence that stays on the screen.
    void say(std::string const& sentence);
    // A line of metrics.jsonl of its own, e.g. of an evaluation.
    void log(std::initializer_list<metric> metrics) { log_.write(metrics); }
    // Shows and logs the last step, if it is not yet.
    void finish();

private:
    void show();
    void log_last();

    metrics_log log_;
    bool terminal_;
    progress last_;
    bool shown_ = true;
    bool logged_ = true;
    double next_show_ = 0;
    std::size_t width_ = 0;  // of what stands on the terminal's line
};

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string formatted(char const* format, ...);
// "12 s", "3:20", "1:02:03"; "412 B", "3.1 MB".
std::string duration_text(double seconds);
std::string bytes_text(std::size_t bytes);
// "1,234,567".
std::string grouped(index_t n);

}  // namespace calm::apps
