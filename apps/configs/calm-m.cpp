// The smallest published model with its published recipe, for loading its checkpoints. Training it takes a cluster.

#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoencoder.steps = 30000;
    r.autoencoder.learning_rate = 3e-4;
    r.autoencoder.warmup = 1000;
    r.autoencoder.batch_tokens = 524288;
    r.autoencoder.accumulation = 32;
    r.calm.steps = 250000;
    r.calm.learning_rate = 3e-4;
    r.calm.optimizer.muon = 0;  // as published
    r.calm.warmup = 2000;
    r.calm.sequences = 256;
    r.calm.accumulation = 256;
    r.calm.block_tokens = 8192;
    r.calm.objective = calm::energy_objective{.samples = 8, .targets = 100};
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::calm_m>("calm-m", defaults());

}  // namespace
