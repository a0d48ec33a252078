#pragma once
/// \file
/// Training configuration: duration, learning rate, batches.
/// \shows{tests/train/session_test.cpp,a_few_steps_from_text_to_a_model}

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "calm/base/bf16.hpp"
#include "calm/base/detail/number_text.hpp"
#include "calm/model/autoencoder.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/head.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/schedule.hpp"

namespace calm {

/// Learning rate after the warm-up; see schedule. A cosine falls until the last step or, in a run without a number of
/// steps, until its time is over.
enum class learning_rate_schedule { constant, cosine };

/// Duration and learning rate; the run ends at `steps` or `seconds`, whichever comes first.
struct training_recipe {
    index_t steps = 0;            ///< 0: limited by time alone
    double seconds = 0;           ///< 0: limited by steps alone
    index_t accumulation = 1;     ///< micro-batches per step; changes memory and the last bits (gradient_tree)
    double learning_rate = 1e-3;  ///< peak learning rate
    index_t warmup = 100;         ///< steps until the peak
    learning_rate_schedule schedule = learning_rate_schedule::constant;  ///< after the warm-up
    adamw_settings optimizer;                                            ///< AdamW and Muon
    /// How products round weights in a context that multiplies in bf16. With stochastic rounding all products of one
    /// step read the same rounded copies (bf16_copies); on the CPU these take 4 bytes per number.
    weight_rounding rounding = weight_rounding::nearest;
    index_t evaluate_every = 0;  ///< steps; 0: every tenth of the run
    index_t save_every = 0;      ///< steps; 0: every tenth of the run
    /// Most steps that a device does before the host waits and reports each of them. The host also waits for a due
    /// evaluation or checkpoint, and at the end. On the CPU every step is reported at once.
    index_t log_every = 1;
    double machine_peak = 0;  ///< FLOP/s, from measure_peak; 0: unknown
    /// Fraction of the run, in [0, 1), that is a first phase; both phases have their own warm-up and decay. 0: one
    /// phase.
    double first_phase = 0;
    /// Most steps of a run that may be skipped because loss or gradients are not finite; one more ends the run. Above
    /// 0, the host waits for a device after every step.
    index_t skip_nonfinite = 0;
};

/// Recipe of an autoencoder: batches of R = batch_tokens / K patches.
struct autoencoder_recipe : training_recipe {
    index_t batch_tokens = 4096;      ///< R K per step
    autoencoder_objective objective;  ///< dropout and the variational term
    /// Fraction of the patches per step that are replaced by uniformly random tokens: it teaches unseen patches.
    double random_patches = 0;
};

/// Defaults of all language models: Muon, at a measured learning rate (docs/results.md). The published recipe is AdamW
/// (optimizer.muon = 0) at 3e-4.
struct language_model_recipe : training_recipe {
    /// Muon at twice the learning rate of 2e-3.
    language_model_recipe() {
        learning_rate = 2e-3;
        optimizer.muon = 2;
    }
};

/// Recipe of a CALM: batches of B sequences of P patches.
template <class Objective> struct calm_recipe : language_model_recipe {
    index_t sequences = 16;      ///< B per step
    index_t block_tokens = 256;  ///< P K
    Objective objective;         ///< loss of the head
};

/// Patch-level training (Shao et al. 2024): positions of K tokens for a fraction of the data, then of one token.
struct patch_level {
    index_t patch = 1;  ///< K of the first phase; 1: token level only
    double share = 0;   ///< lambda, in [0, 1): fraction of all tokens

    /// Parses "4:0.67", K and lambda. Throws errc::usage for anything else.
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
    /// The text that parse() reads.
    [[nodiscard]] std::string text() const { return std::to_string(patch) + ":" + shortest(share); }

    /// Cost per token relative to token-level training: lambda / K + 1 - lambda.
    [[nodiscard]] double cost() const { return first_cost() + 1 - share; }
    /// Fraction of the run's steps, and of its time, that the first phase takes.
    [[nodiscard]] double first_phase() const { return patch > 1 ? first_cost() / cost() : 0; }

private:
    [[nodiscard]] double first_cost() const { return share / static_cast<double>(patch); }
};

/// Recipe of an autoregressive model: batches of B sequences of P positions. In the first phase of patch-level training
/// positions have K tokens, so sequences are K times longer.
struct autoregressive_recipe : language_model_recipe {
    index_t sequences = 16;      ///< B per step
    index_t block_tokens = 256;  ///< P
    patch_level level;           ///< token level only by default
};

/// The recipe with the objective of a known head.
template <head_objective Objective> calm_recipe<Objective> with_objective(calm_recipe<any_objective> const& r) {
    return {r, r.sequences, r.block_tokens, static_cast<Objective>(r.objective)};
}

/// Steps of the first phase, for a run limited by steps.
inline index_t first_phase_steps(training_recipe const& r) {
    return static_cast<index_t>(std::ceil(r.first_phase * static_cast<double>(r.steps)));
}

/// Progress of a run by steps or by time, whichever is further: 0 .. 1.
inline double progress_fraction(training_recipe const& r, index_t steps, double seconds) {
    double done = 0;
    if (r.steps > 0) done = static_cast<double>(steps) / static_cast<double>(r.steps);
    if (r.seconds > 0) done = std::max(done, seconds / r.seconds);
    return std::min(done, 1.0);
}

namespace detail {

// Learning rates of a phase; `steps` counts only in a run limited by steps.
inline schedule schedule_of(training_recipe const& r, index_t steps) {
    if (r.schedule == learning_rate_schedule::constant) return schedule::constant(r.learning_rate, r.warmup);
    return r.steps > 0 ? schedule::cosine(r.learning_rate, r.warmup, steps)
                       : schedule::cosine_of_time(r.learning_rate, r.warmup);
}

inline void check(training_recipe const& r) {
    require(r.steps >= 0 && r.seconds >= 0 && (r.steps > 0 || r.seconds > 0), errc::usage,
            "training: expected a number of steps or a time above 0, found neither; give one of them, or both");
    require(r.steps <= limits::steps && std::isfinite(r.seconds), errc::usage, "training: expected at most ",
            limits::steps, " steps and a finite time, found ", r.steps, " steps and ", r.seconds, " seconds");
    require(r.accumulation >= 1, errc::usage, "training: expected at least 1 micro-batch per step");
    require(r.log_every >= 1 && r.log_every <= outcomes_kept, errc::usage, "training: expected a report every 1 to ",
            outcomes_kept, " steps, found ", r.log_every);
    require(r.skip_nonfinite >= 0, errc::usage, "training: expected at least 0 steps that may be skipped");
    require(r.first_phase >= 0 && r.first_phase < 1, errc::usage,
            "training: expected a first phase of a share of the run from 0 to below 1, found ", r.first_phase);
}

}  // namespace detail

}  // namespace calm
