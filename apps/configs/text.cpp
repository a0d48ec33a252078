// For real text: twice as wide as tiny, and twice as deep.

#include "compiled_configuration.hpp"

namespace {

constexpr calm::configuration text{.autoencoder = {.vocab_size = 4096,
                                                   .patch_size = 4,
                                                   .hidden_size = 256,
                                                   .intermediate_size = 640,
                                                   .latent_size = 64},
                                   .hidden_size = 256,
                                   .intermediate_size = 704,
                                   .num_hidden_layers = 6,
                                   .num_attention_heads = 4,
                                   .num_key_value_heads = 4,
                                   .num_mlp_layers = 3};

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
    r.calm.objective = {.samples = 8, .targets = 32};
    return r;
}

bool const registered = calm::apps::compile_configuration<text>("text", defaults());

}  // namespace
