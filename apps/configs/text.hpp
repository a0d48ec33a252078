#pragma once
// Default recipes of the text configurations.

#include "registry.hpp"

namespace calm::apps {

inline recipes text_recipes() {
    recipes r;
    r.autoencoder.steps = 2000;
    r.autoencoder.learning_rate = 1e-3;
    r.autoencoder.warmup = 100;
    r.autoencoder.batch_tokens = 4096;
    r.autoencoder.random_patches = 0.15;
    r.calm.steps = 4000;
    r.calm.warmup = 200;
    r.calm.sequences = 8;
    r.calm.block_tokens = 512;
    r.calm.objective = energy_objective{.samples = 8, .targets = 32};
    return r;
}

}  // namespace calm::apps
