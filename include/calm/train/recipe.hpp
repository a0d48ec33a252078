#pragma once
// How a run trains: how long, how fast, on what batches.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "calm/base/bf16.hpp"
#include "calm/base/number_text.hpp"
#include "calm/model/autoencoder.hpp"
#include "calm/model/head.hpp"
#include "calm/model/limits.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/schedule.hpp"

namespace calm {

// How the rate goes on after the warm-up; see schedule. A cosine falls to the last step, or, in a run without a number
// of steps, over its time.
enum class rate_schedule { constant, cosine };

// How long and how fast; whichever of steps and seconds is reached first ends the run.
struct training_recipe {
    index_t steps = 0;         // 0: as many as the time allows
    double seconds = 0;        // 0: as long as the steps take
    index_t accumulation = 1;  // micro-batches a step; it changes memory and rounding, not the result (gradient_tree)
    double rate = 1e-3;        // at its peak
    index_t warmup = 100;      // steps until the peak
    rate_schedule schedule = rate_schedule::constant;  // after the warm-up
    adamw_settings optimizer;                          // moments, decay, clipping, Muon
    // Of a context that multiplies in bf16: how a step's products round weights. At random, all of them read the copies
    // of that step (bf16_copies); the cpu then has memory for them, 4 bytes a number.
    weight_rounding rounding = weight_rounding::nearest;
    index_t evaluate_every = 0;  // steps; 0: every tenth of the run
    index_t save_every = 0;      // steps; 0: every tenth of the run
    // A device is asked for at most so many steps, and then waited for, where each of them is told; also where an
    // evaluation or saving is due, and at the end. The host's memory needs no waiting: there each is told at once.
    index_t tell_every = 1;
    double machine_peak = 0;  // FLOP/s, from measure_peak; 0: unknown
    // The share of the run, in [0, 1), that is a phase before the other, each with a warm-up and a decay of its own; 0:
    // there is one phase.
    double first_phase = 0;
    // So many steps of a run, at most, whose loss or gradients are not finite are left out; one more ends the run. A
    // device is then waited for after each step.
    index_t skip_nonfinite = 0;
};

// How an autoencoder is trained: batches of R = batch_tokens / K patches.
struct autoencoder_recipe : training_recipe {
    index_t batch_tokens = 4096;      // R K of a step
    autoencoder_objective objective;  // dropout and the variational term
    // The share of a step's patches that are replaced by uniformly random tokens: it teaches unseen patches.
    double random_patches = 0;
};

// What all language models start from: Muon, at a rate that it was measured at (docs/results.md). The published recipe
// is AdamW, optimizer.muon = 0, at 3e-4.
struct language_model_recipe : training_recipe {
    // Muon at twice a rate of 2e-3.
    language_model_recipe() {
        rate = 2e-3;
        optimizer.muon = 2;
    }
};

// How a CALM is trained: batches of B sequences of P patches.
template <class Objective> struct calm_recipe : language_model_recipe {
    index_t sequences = 16;      // B of a step
    index_t block_tokens = 256;  // P K
    Objective objective;         // of the head's loss
};

// How patch-level training (Shao et al. 2024) begins: positions of K tokens for a share of the data, then of one.
struct patch_level {
    index_t patch = 1;  // K of the first phase; 1: all is token level
    double share = 0;   // lambda, in [0, 1): of all tokens

    // Reads "4:0.67", K and lambda. Throws errc::usage for anything else.
    static patch_level parse(std::string_view text) {
        patch_level level;
        auto const end = text.data() + text.size();
        auto const [colon, bad_patch] = std::from_chars(text.data(), end, level.patch);
        bool good = bad_patch == std::errc{} && colon != end && *colon == ':';
        if (good) {
            auto const [last, bad_share] = std::from_chars(colon + 1, end, level.share);
            good = bad_share == std::errc{} && last == end;
        }
        require(good && level.patch >= 2 && level.share > 0 && level.share < 1, errc::usage, [&] {
            return "patch level: expected K:SHARE, such as 4:0.67, positions of at least 2 tokens for a share of the "
                   "tokens above 0 and below 1; found '" +
                   std::string(text) + "'";
        });
        return level;
    }
    // As parse reads it.
    [[nodiscard]] std::string text() const { return std::to_string(patch) + ":" + shortest(share); }

    // What a token costs, by the one of token-level training: lambda / K + 1 - lambda.
    [[nodiscard]] double cost() const { return first_cost() + 1 - share; }
    // The share of the run's steps, and of its time, that the first phase takes.
    [[nodiscard]] double first_phase() const { return patch > 1 ? first_cost() / cost() : 0; }

private:
    [[nodiscard]] double first_cost() const { return share / static_cast<double>(patch); }
};

// How an autoregressive model is trained: batches of B sequences of P positions; of K tokens each in the first phase of
// patch-level training, whose sequences are K times longer.
struct autoregressive_recipe : language_model_recipe {
    index_t sequences = 16;      // B of a step
    index_t block_tokens = 256;  // P
    patch_level level;           // all token level by default
};

// The same recipe with the objective of a head that is known.
template <head_objective Objective> calm_recipe<Objective> with_objective(calm_recipe<any_objective> const& r) {
    return {r, r.sequences, r.block_tokens, static_cast<Objective>(r.objective)};
}

// The steps of the first phase of a run that steps limit.
inline index_t first_phase_steps(training_recipe const& r) {
    return static_cast<index_t>(std::ceil(r.first_phase * static_cast<double>(r.steps)));
}

// How far a run is, by steps or by time, whichever is further: 0 .. 1.
inline double share_done(training_recipe const& r, index_t steps, double seconds) {
    double done = 0;
    if (r.steps > 0) done = static_cast<double>(steps) / static_cast<double>(r.steps);
    if (r.seconds > 0) done = std::max(done, seconds / r.seconds);
    return std::min(done, 1.0);
}

namespace detail {

// Of a phase of so many steps, where steps limit the run.
inline schedule schedule_of(training_recipe const& r, index_t steps) {
    if (r.schedule == rate_schedule::constant) return schedule::constant(r.rate, r.warmup);
    return r.steps > 0 ? schedule::cosine(r.rate, r.warmup, steps) : schedule::cosine_of_time(r.rate, r.warmup);
}

inline void check(training_recipe const& r) {
    require(r.steps >= 0 && r.seconds >= 0 && (r.steps > 0 || r.seconds > 0), errc::usage,
            "training: expected a number of steps or a time above 0, found neither; give one of them, or both");
    require(r.steps <= limits::steps && std::isfinite(r.seconds), errc::usage, "training: expected at most ",
            limits::steps, " steps and a time that ends, found ", r.steps, " steps and ", r.seconds, " seconds");
    require(r.accumulation >= 1, errc::usage, "training: expected at least 1 micro-batch a step");
    require(r.tell_every >= 1 && r.tell_every <= outcomes_kept, errc::usage, "training: expected to tell every 1 to ",
            outcomes_kept, " steps, found ", r.tell_every);
    require(r.skip_nonfinite >= 0, errc::usage, "training: expected at least 0 steps that may be left out");
    require(r.first_phase >= 0 && r.first_phase < 1, errc::usage,
            "training: expected a first phase of a share of the run from 0 to below 1, found ", r.first_phase);
}

}  // namespace detail

}  // namespace calm
