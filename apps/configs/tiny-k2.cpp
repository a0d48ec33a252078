// tiny with two tokens a patch.

#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoencoder.steps = 1000;
    r.autoencoder.rate = 2e-3;
    r.autoencoder.objective.kl_weight = 5e-3;
    r.autoencoder.warmup = 50;
    r.autoencoder.batch_tokens = 4096;
    r.calm.steps = 2000;
    r.calm.rate = 1e-3;
    r.calm.warmup = 200;
    r.calm.sequences = 8;  // as many patches a step as tiny
    r.calm.block_tokens = 256;
    r.calm.objective = {.samples = 8, .targets = 32};
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_k2>("tiny-k2", defaults());

}  // namespace
