#pragma once
// Learning rates by the number of the step, from 0 (rates in docs/mathematics.md).

#include <algorithm>
#include <cmath>
#include <numbers>

#include "calm/base/error.hpp"
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
        require(total > warmup, errc::usage, "calm::schedule: expected more steps in all than the ", warmup,
                " of warm-up, found ", total);
        require(floor >= 0 && floor <= 1, errc::usage,
                "calm::schedule: expected a floor from 0 to 1, a fraction of the peak, found ", floor);
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
        require(peak > 0 && std::isfinite(peak), errc::usage, "calm::schedule: expected a rate above 0, found ", peak);
        require(warmup >= 0, errc::usage, "calm::schedule: expected a warm-up of at least 0 steps, found ", warmup);
    }

    double peak_;
    index_t warmup_;
    index_t total_;  // 0 where the rate stays
    double floor_;
};

}  // namespace calm
