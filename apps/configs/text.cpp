// For real text: twice as wide as tiny, and twice as deep.

#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoencoder.steps = 2000;
    r.autoencoder.rate = 1e-3;
    r.autoencoder.warmup = 100;
    r.autoencoder.batch_tokens = 4096;
    r.autoencoder.random_patches = 0.15;
    r.calm.steps = 4000;
    r.calm.rate = 6e-4;
    r.calm.warmup = 200;
    r.calm.sequences = 8;
    r.calm.block_tokens = 512;
    r.calm.objective = calm::energy_objective{.samples = 8, .targets = 32};
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::text>("text", defaults());

}  // namespace
