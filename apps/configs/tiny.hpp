#pragma once
// Default recipes of the tiny configurations at any patch size.

#include "registry.hpp"

namespace calm::apps {

// A language-model step has 1024 patches at every K, hence K times as many tokens.
inline recipes tiny_recipes(index_t K) {
    recipes r;
    r.autoencoder.steps = 1000;
    r.autoencoder.learning_rate = 2e-3;
    r.autoencoder.objective.kl_weight = 5e-3;  // a wider posterior is easier to predict
    r.autoencoder.warmup = 50;
    r.autoencoder.batch_tokens = 4096;
    r.calm.steps = 2000;
    r.calm.warmup = 200;
    r.calm.sequences = 4 * K;
    r.calm.block_tokens = 256;
    r.calm.objective = energy_objective{.samples = 8, .targets = 32};
    return r;
}
// For a head whose loss pairs every sample with a target.
inline recipes tiny_recipes_of_pairs() {
    recipes r = tiny_recipes(4);
    r.calm.objective = paired_objective{.samples = 8};
    return r;
}

// A step has 1024 positions, as for a CALM at every K.
inline recipes tiny_autoregressive_recipes(patch_level level = {}) {
    recipes r;
    r.autoregressive.steps = 2000;
    r.autoregressive.learning_rate = 3e-3;
    r.autoregressive.warmup = 200;
    r.autoregressive.sequences = 4;
    r.autoregressive.block_tokens = 256;
    r.autoregressive.level = level;
    return r;
}

}  // namespace calm::apps
