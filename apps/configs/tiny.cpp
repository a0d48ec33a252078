// The smallest configuration that learns to write: the quickstart's.

#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoencoder.steps = 1000;
    r.autoencoder.rate = 2e-3;
    r.autoencoder.objective.kl_weight = 5e-3;  // a wider posterior is easier to predict
    r.autoencoder.warmup = 50;
    r.autoencoder.batch_tokens = 4096;
    r.calm.steps = 2000;
    r.calm.rate = 1e-3;  // at 1.5e-3 real text failed silently: docs/results.md
    r.calm.warmup = 200;
    r.calm.sequences = 16;
    r.calm.block_tokens = 256;
    r.calm.objective = {.samples = 8, .targets = 32};
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny>("tiny", defaults());

}  // namespace
