#pragma once
// What a run tells while it trains, and the state that it offers to be kept.

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/train/optimizer.hpp"

namespace calm {

// All that a run knows between two steps besides its model and its text: with these it goes on bit for bit (see
// checkpoint.hpp and run_directory.hpp for files). The moments are the optimizer's own memory; of several ranks each
// goes on from its part of them, and rank 0 is offered all.
struct training_state {
    index_t step = 0;                       // steps done: the number of the next one, and of its random numbers
    index_t updates = 0;                    // of the weights
    index_t hidden_from = 0;                // updates before the moments of matrices between hidden states began
    index_t skipped = 0;                    // steps left out: step = updates + skipped
    index_t first_phase_steps = 0;          // of the first of two phases; 0 as long as it lasts
    double seconds = 0;                     // that the run has taken
    std::vector<optimizer_tensor> moments;  // of the optimizer, which owns the bytes
};

// Why a state is offered: its interval, an evaluation that was just told of, the end of the run.
enum class state_after { interval, evaluation, end };

// Bytes by kind, known before the first step; evaluation may ask for more saved activations and scratch.
struct memory_plan {
    // One kind of memory.
    struct part {
        std::string name;   // of the kind, or of its arena
        std::size_t bytes;  // the most at once
    };
    std::vector<part> parts;  // in the order in which they are printed
    // Bytes of all parts.
    [[nodiscard]] std::size_t total() const {
        std::size_t sum = 0;
        for (auto const& p : parts) sum += p.bytes;
        return sum;
    }
};

// A step that was done. Parts that the model does not have are NaN.
struct progress {
    static constexpr double none = std::numeric_limits<double>::quiet_NaN();  // of a part that there is not

    index_t step = 0;                 // from 0
    bool first_phase = false;         // whether it belongs to the first of two phases
    index_t tokens = 0;               // of the run so far
    double loss = none;               // of the step, a mean over its positions or patches
    double cross_entropy = none;      // of an autoencoder, as autoencoder_losses
    double kl = none;                 // of an autoencoder
    double posterior_std = none;      // of an autoencoder
    double gradient_norm = none;      // before clipping
    double rate = none;               // of the step
    double tokens_per_second = none;  // over the last steps, at most throughput::window
    double share_of_peak = none;      // products of a step over what measure_peak found, at most 1
    std::size_t memory = 0;           // bytes
    double seconds = 0;               // of the run so far
    double seconds_left = none;       // as far as the speed of now lasts
    double done = 0;                  // of the run, 0 .. 1
    index_t skipped = 0;              // steps left out so far
};

// All may be empty. What evaluation and saving take counts as time of the run, not in the tokens a second. A device is
// asked for training_recipe::tell_every steps, of which then each is told; speed and time are those of that moment.
struct training_callbacks {
    std::function<void(memory_plan const&)> start;  // once, before the first step
    // Before the first step: fills in the numbers and the moments to go on from. The model has its weights already.
    std::function<void(training_state&)> resume;
    std::function<void(progress const&)> step;      // after each
    std::function<void(progress const&)> evaluate;  // at its interval, and once a fifth of the run is done
    std::function<void(progress const&)> save;      // at its interval; not at the end
    std::function<void(progress const&)> ended;     // after the last step, before its checkpoint
    // The state, to be kept: where `save` is told, after an evaluation, and after the last step, also where `stop` ends
    // the run. Once a step at most; the spans of its moments are to be read before it returns.
    std::function<void(training_state const&, state_after)> checkpoint;
    // A step was left out (skip_nonfinite), for the reason given; told before `step`.
    std::function<void(progress const&, error const&)> skipped;
    std::function<bool()> stop;  // true ends the run after the step that was told last
};

}  // namespace calm
