#pragma once
// Learning rates by the number of the step, from 0 (spec 11).

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "calm/tensor/error.hpp"
#include "calm/tensor/extents.hpp"

namespace calm {

// A rate for every step: it rises over the warm-up as peak * (step + 1) / warmup, and then stays, or falls along half a
// cosine to floor * peak at the last step.
class schedule {
public:
    // Warm-up, then constant: the published recipe. Throws errc::usage unless peak > 0 and warmup >= 0.
    static schedule constant(double peak, index_t warmup) { return {peak, warmup, 0, 1}; }

    // Warm-up, then a cosine whose last step, total - 1, has floor * peak. Throws errc::usage unless total > warmup and
    // 0 <= floor <= 1. A tenth is the usual floor: a run that goes on afterwards still learns.
    static schedule cosine(double peak, index_t warmup, index_t total, double floor = 0.1) {
        must(total > warmup, "more steps in all than the " + std::to_string(warmup) + " of warm-up",
             std::to_string(total));
        must(floor >= 0 && floor <= 1, "a floor from 0 to 1, a fraction of the peak", std::to_string(floor));
        return {peak, warmup, total, floor};
    }

    // The rate of a step; steps after the last have the last one's.
    [[nodiscard]] double operator()(index_t step) const {
        if (step < warmup_) return peak_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
        if (total_ == 0) return peak_;
        double const part =
            static_cast<double>(std::min(step + 1, total_) - warmup_) / static_cast<double>(total_ - warmup_);
        return peak_ * (floor_ + (1 - floor_) * 0.5 * (1 + std::cos(std::numbers::pi * part)));
    }

private:
    schedule(double peak, index_t warmup, index_t total, double floor) :
        peak_(peak), warmup_(warmup), total_(total), floor_(floor) {
        must(peak > 0 && std::isfinite(peak), "a rate above 0", std::to_string(peak));
        must(warmup >= 0, "a warm-up of at least 0 steps", std::to_string(warmup));
    }
    static void must(bool holds, std::string const& expected, std::string const& found) {
        require(holds, errc::usage, [&] { return "calm::schedule: expected " + expected + ", found " + found; });
    }

    double peak_;
    index_t warmup_;
    index_t total_;  // 0 where the rate stays
    double floor_;
};

}  // namespace calm
