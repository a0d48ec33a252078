#pragma once
// Resources that a training run needs, computed without running a step.

#include <cstddef>
#include <functional>
#include <string>

#include "calm/train/loop.hpp"
#include "command/options.hpp"

namespace calm::apps {

struct run_plan {
    std::string configuration;
    index_t parameters = 0;  // trainable
    index_t vocabulary = 0;
    std::size_t documents = 0;  // to train on
    std::size_t tokens = 0;
    std::size_t heldout_tokens = 0;  // for evaluation
    index_t tokens_per_step = 0;
    double flops_per_token = 0;  // of the model's products; second phase of patch-level training
    double muon_flops = 0;       // of Muon's products per step
    patch_level level = {};      // of patch-level training
    training_recipe recipe = {};
    memory_plan memory = {};
};

// "positions of 4 tokens for 0.67 of the tokens, the first 0.336 of the run: 0.498 of the cost"
std::string patch_level_text(patch_level const& level);
// Short form for tables: "4:0.6667".
std::string short_text(patch_level const& level);

// The plan as lines of text, with the disk space that checkpoints need and that is free.
std::string to_text(run_plan const& plan, train_options const& o);

// The number of micro-batches per step on a device, where small products would leave it idle. Halves the recipe's
// number as long as the ranks share the result evenly and bytes(micro-batches) fits into nine tenths of the memory.
index_t fewest_micro_batches(index_t in_recipe, index_t ranks, std::size_t memory,
                             std::function<std::size_t(index_t)> const& bytes);

// Callbacks that end a loop before its first step, so that it only reports the memory plan.
training_callbacks only_the_plan(memory_plan& to, training_recipe const& recipe);

}  // namespace calm::apps
