// For a day of training on your own text: the published autoencoder, and a backbone of half the width and depth.

#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoencoder.steps = 10000;
    r.autoencoder.learning_rate = 6e-4;
    r.autoencoder.warmup = 500;
    r.autoencoder.batch_tokens = 8192;
    r.autoencoder.random_patches = 0.15;
    r.calm.steps = 20000;
    r.calm.learning_rate = 3e-4;
    r.calm.warmup = 500;
    r.calm.sequences = 8;
    r.calm.block_tokens = 1024;
    r.calm.objective = calm::energy_objective{.samples = 8, .targets = 100};
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::small>("small", defaults());

}  // namespace
