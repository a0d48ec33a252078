#pragma once
// What a training run would take, known without a step of it.

#include <cstddef>
#include <functional>
#include <string>

#include "calm/train/loop.hpp"
#include "command/options.hpp"

namespace calm::apps {

struct run_plan {
    std::string configuration;
    index_t parameters = 0;  // to train
    index_t vocabulary = 0;
    std::size_t documents = 0;  // of the text to train on
    std::size_t tokens = 0;
    std::size_t heldout_tokens = 0;  // that the run is evaluated on
    index_t tokens_per_step = 0;
    double flops_per_token = 0;  // of the model's products; of patch-level training, of its second phase
    double muon_flops = 0;       // of Muon's products, a step
    patch_level level = {};      // of patch-level training
    training_recipe recipe = {};
    memory_plan memory = {};
};

// "positions of 4 tokens for 0.67 of the tokens, the first 0.336 of the run: 0.498 of the cost"
std::string patch_level_text(patch_level const& level);
// "4:0.6667", for tables
std::string short_text(patch_level const& level);

// The plan as lines of text, with the disk that the checkpoints of the options need and have.
std::string to_text(run_plan const& plan, train_options const& o);

// How many micro-batches a step has on a device that finds the given number in its recipe: half of them again and
// again, as long as the ranks share them evenly and what a run then takes, bytes(micro-batches), is in nine tenths of
// the memory. Kernels of few rows leave a device idle.
index_t fewest_micro_batches(index_t in_recipe, index_t ranks, std::size_t memory,
                             std::function<std::size_t(index_t)> const& bytes);

// What a loop tells so that it ends before its first step: only the memory plan is taken.
training_callbacks only_the_plan(memory_plan& to, training_recipe const& recipe);

}  // namespace calm::apps
