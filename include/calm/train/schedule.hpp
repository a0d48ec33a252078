#pragma once
/// \file
/// Learning rates by step number, from 0, or by progress of the run (formulas in docs/mathematics/optimizers.md).
/// \shows{tests/train/schedule_test.cpp,the_cosine_ends_at_the_floor}

#include <algorithm>
#include <cmath>
#include <numbers>

#include "calm/base/error.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

/// The learning rate of every step. It rises during the warm-up as peak * (step + 1) / warmup, then stays, or falls
/// along half a cosine to floor * peak at the last step. In a run of unknown length the cosine falls with time instead.
class schedule {
public:
    /// Warm-up, then constant: the published recipe. Throws errc::usage unless peak > 0 and warmup >= 0.
    static schedule constant(double peak, index_t warmup) { return {peak, warmup, 0, 1}; }

    /// Warm-up, then a cosine that reaches floor * peak at the last step, total - 1. Throws errc::usage unless total >
    /// warmup and 0 <= floor <= 1. The usual floor is a tenth: a run that is resumed afterwards still learns.
    static schedule cosine(double peak, index_t warmup, index_t total, double floor = 0.1) {
        require(total > warmup, errc::usage, "calm::schedule: expected more steps in total than the ", warmup,
                " of warm-up, found ", total);
        return {peak, warmup, total, floor};
    }

    /// For a run limited by time: the cosine falls with the progress of the run from its beginning to its end, and the
    /// warm-up, in steps, is a factor. Throws errc::usage unless warmup >= 0 and 0 <= floor <= 1.
    static schedule cosine_of_time(double peak, index_t warmup, double floor = 0.1) {
        schedule made{peak, warmup, 0, floor};
        made.of_time_ = true;
        return made;
    }

    /// Learning rate of `step`; steps after the last have the last one. `done`, in [0, 1], is the progress before the
    /// step and counts only for cosine_of_time.
    [[nodiscard]] double operator()(index_t step, double done = 0) const {
        double const peak = of_time_ ? peak_ * fallen(done) : peak_;
        if (step < warmup_) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_);
        if (total_ == 0) return peak;
        double const part =
            static_cast<double>(std::min(step + 1, total_) - warmup_) / static_cast<double>(total_ - warmup_);
        return peak * fallen(part);
    }

private:
    schedule(double peak, index_t warmup, index_t total, double floor) :
        peak_(peak), warmup_(warmup), total_(total), floor_(floor) {
        require(peak > 0 && std::isfinite(peak), errc::usage,
                "calm::schedule: expected a learning rate above 0, found ", peak);
        require(warmup >= 0, errc::usage, "calm::schedule: expected a warm-up of at least 0 steps, found ", warmup);
        require(floor >= 0 && floor <= 1, errc::usage,
                "calm::schedule: expected a floor from 0 to 1, a fraction of the peak, found ", floor);
    }

    // Fraction of the peak left after a part of the cosine.
    [[nodiscard]] double fallen(double part) const {
        return floor_ + (1 - floor_) * 0.5 * (1 + std::cos(std::numbers::pi * part));
    }

    double peak_;
    index_t warmup_;
    index_t total_;  // 0: no last step
    double floor_;
    bool of_time_ = false;
};

}  // namespace calm
