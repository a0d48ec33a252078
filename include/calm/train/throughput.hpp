#pragma once
// How fast a run goes, and how long it still takes.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "calm/tensor/extents.hpp"

namespace calm {

// Seconds of a clock that never goes back.
inline double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The share of a machine's peak FLOP/s that work of so many FLOPs and seconds takes: above 0, at most 1. NaN where the
// peak is unknown (0) or is none: it was measured while the machine was busy, and the work went faster.
inline double share_of_peak(double flops, double seconds, double peak) {
    double const share = flops / seconds / peak;
    return share > 0 && share <= 1 ? share : std::numeric_limits<double>::quiet_NaN();
}

// How fast a run goes, by its last steps, and how long it still takes. The clock, in seconds, is an argument.
class throughput {
public:
    // Begins now, by that clock.
    explicit throughput(std::function<double()> seconds = steady_seconds) :
        seconds_(std::move(seconds)), start_(seconds_()) {
        marks_.reserve(window + 2);  // a step allocates nothing
        marks_.push_back({start_, 0, 0});
    }

    // A step more, or several that were done together, of so many tokens.
    void add(index_t tokens, index_t steps = 1) {
        marks_.push_back({seconds_(), marks_.back().tokens + tokens, marks_.back().steps + steps});
        if (marks_.size() > window + 1) marks_.erase(marks_.begin());
    }

    // Time that was spent on something else since the last step, e.g. an evaluation, is not counted in the speed.
    void resume() {
        double const idle = seconds_() - marks_.back().at;
        for (auto& each : marks_) each.at += idle;
    }

    [[nodiscard]] index_t steps() const { return marks_.back().steps; }   // steps that were added
    [[nodiscard]] double elapsed() const { return seconds_() - start_; }  // seconds since it began

    // Over at most the last `window` times that steps were added; NaN before there is one.
    [[nodiscard]] double tokens_per_second() const {
        return static_cast<double>(marks_.back().tokens - marks_.front().tokens) / span_of_marks();
    }
    // Over the same steps.
    [[nodiscard]] double seconds_per_step() const {
        return span_of_marks() / static_cast<double>(marks_.back().steps - marks_.front().steps);
    }

    // Until `steps_left` more steps are done, or `limit` seconds since the start have passed, whichever comes first.
    [[nodiscard]] double seconds_left(index_t steps_left,
                                      double limit = std::numeric_limits<double>::infinity()) const {
        double const by_clock = std::max(0.0, limit - elapsed());
        if (steps() == 0) return steps_left > 0 ? by_clock : 0.0;
        return std::min(static_cast<double>(std::max<index_t>(0, steps_left)) * seconds_per_step(), by_clock);
    }

    static constexpr std::size_t window = 32;  // times that the speed is measured over

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
