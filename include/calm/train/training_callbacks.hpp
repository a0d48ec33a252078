#pragma once
/// \file
/// What a run reports while it trains, and the state that it offers to save.
/// \shows{tests/train/loop_test.cpp,the_plan_comes_first_and_a_step_stays_within_it}

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/train/optimizer.hpp"

namespace calm {

/// Everything besides model and text that a run needs to resume bit for bit (checkpoint.hpp and run_directory.hpp have
/// the files). With several ranks each resumes from its shard, and rank 0 is offered all shards.
struct training_state {
    index_t step = 0;               ///< steps done: the number of the next step, and of its random numbers
    index_t updates = 0;            ///< of the weights
    index_t hidden_from = 0;        ///< updates before the optimizer state of hidden matrices began
    index_t skipped = 0;            ///< skipped steps: step = updates + skipped
    index_t first_phase_steps = 0;  ///< steps of the first of two phases; 0 while it lasts
    double seconds = 0;             ///< duration of the run
    std::vector<detail::optimizer_tensor> optimizer_state;  ///< refers to memory of the optimizer
};

/// Why a state is offered: its interval, an evaluation that was just reported, the end of the run.
enum class state_after { interval, evaluation, end };

/// Bytes by kind, known before the first step; evaluation may need more saved activations and workspace.
struct memory_plan {
    /// One kind of memory.
    struct part {
        std::string name;   ///< of the kind, or of its arena
        std::size_t bytes;  ///< peak
    };
    std::vector<part> parts;  ///< in the order of printing
    /// Bytes of all parts.
    [[nodiscard]] std::size_t total() const {
        std::size_t sum = 0;
        for (auto const& p : parts) sum += p.bytes;
        return sum;
    }
};

/// Report of one step. Values that the model does not have are NaN.
struct progress {
    static constexpr double none = std::numeric_limits<double>::quiet_NaN();  ///< for a value that does not exist

    index_t step = 0;                 ///< from 0
    bool first_phase = false;         ///< whether it belongs to the first of two phases
    index_t tokens = 0;               ///< of the run so far
    double loss = none;               ///< mean over the positions or patches of the step
    double cross_entropy = none;      ///< of an autoencoder (autoencoder_losses)
    double kl = none;                 ///< of an autoencoder
    double posterior_std = none;      ///< of an autoencoder
    double gradient_norm = none;      ///< before clipping
    double learning_rate = none;      ///< learning rate of the step
    double tokens_per_second = none;  ///< over the last steps, at most throughput::window
    double share_of_peak = none;      ///< FLOP/s of products as a fraction of measure_peak, at most 1
    std::size_t memory = 0;           ///< bytes
    double seconds = 0;               ///< of the run so far
    double seconds_left = none;       ///< at the current speed
    double done = 0;                  ///< fraction of the run, 0 .. 1
    index_t skipped = 0;              ///< steps skipped so far
};

/// All may be empty. Evaluation and saving count as time of the run, not in tokens_per_second. On a device, steps are
/// reported in batches of training_recipe::log_every; speed and time are measured at the end of the batch.
struct training_callbacks {
    std::function<void(memory_plan const&)> start;  ///< once, before the first step
    /// Before the first step: fills in the counters and the optimizer state to resume from. The model already has its
    /// weights.
    std::function<void(training_state&)> resume;
    std::function<void(progress const&)> step;      ///< after each step
    std::function<void(progress const&)> evaluate;  ///< at its interval, and when a fifth of the run is done
    std::function<void(progress const&)> save;      ///< at its interval; not at the end
    std::function<void(progress const&)> ended;     ///< after the last step, before its checkpoint
    /// The state, to be saved: together with `save`, after an evaluation, and after the last step, also if `stop` ended
    /// the run. At most once per step; the spans in `optimizer_state` must be read before it returns.
    std::function<void(training_state const&, state_after)> checkpoint;
    /// A step was skipped (skip_nonfinite), with the reason; called before `step`.
    std::function<void(progress const&, error const&)> skipped;
    std::function<bool()> stop;  ///< true ends the run after the last reported step
};

}  // namespace calm
