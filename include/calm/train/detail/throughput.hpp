#pragma once
// Speed of a run and the time left.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "calm/tensor/core/extents.hpp"

namespace calm {

// Seconds of a monotonic clock.
inline double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Fraction of the machine's peak FLOP/s that work of `flops` in `seconds` reaches: above 0, at most 1. NaN if the peak
// is unknown (0), or too low because it was measured on a busy machine.
inline double share_of_peak(double flops, double seconds, double peak) {
    double const fraction = flops / seconds / peak;
    return fraction > 0 && fraction <= 1 ? fraction : std::numeric_limits<double>::quiet_NaN();
}

// Speed of a run over its last steps, and the time left.
class throughput {
public:
    // Starts now, by a clock that returns seconds.
    explicit throughput(std::function<double()> seconds = steady_seconds) :
        seconds_(std::move(seconds)), start_(seconds_()) {
        marks_.reserve(window + 2);  // so that steps allocate nothing
        marks_.push_back({start_, 0, 0});
    }

    // Adds one step, or several done together, with `tokens` in total.
    void add(index_t tokens, index_t steps = 1) {
        marks_.push_back({seconds_(), marks_.back().tokens + tokens, marks_.back().steps + steps});
        if (marks_.size() > window + 1) marks_.erase(marks_.begin());
    }

    // Excludes the time since the last step from the speed, for instance that of an evaluation.
    void resume() {
        double const idle = seconds_() - marks_.back().at;
        for (auto& each : marks_) each.at += idle;
    }

    [[nodiscard]] index_t steps() const { return marks_.back().steps; }   // steps added so far
    [[nodiscard]] double elapsed() const { return seconds_() - start_; }  // seconds since the start

    // Over at most the last `window` calls of add(); NaN before the first.
    [[nodiscard]] double tokens_per_second() const {
        return static_cast<double>(marks_.back().tokens - marks_.front().tokens) / span_of_marks();
    }
    // Over the same calls.
    [[nodiscard]] double seconds_per_step() const {
        return span_of_marks() / static_cast<double>(marks_.back().steps - marks_.front().steps);
    }

    // Seconds until `steps_left` more steps are done, or `limit` seconds since the start have passed, whichever comes
    // first.
    [[nodiscard]] double seconds_left(index_t steps_left,
                                      double limit = std::numeric_limits<double>::infinity()) const {
        double const by_clock = std::max(0.0, limit - elapsed());
        if (steps() == 0) return steps_left > 0 ? by_clock : 0.0;
        return std::min(static_cast<double>(std::max<index_t>(0, steps_left)) * seconds_per_step(), by_clock);
    }

    static constexpr std::size_t window = 32;  // calls of add() that the speed is measured over

private:
    struct mark {
        double at;
        index_t tokens;
        index_t steps;
    };
    [[nodiscard]] double span_of_marks() const {
        return steps() > 0 ? marks_.back().at - marks_.front().at : std::numeric_limits<double>::quiet_NaN();
    }

    std::function<double()> seconds_;
    double start_;
    std::vector<mark> marks_;
};

}  // namespace calm
