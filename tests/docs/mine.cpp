#include "compiled_configuration.hpp"

namespace {

constexpr calm::configuration<> mine{
    .autoencoder = {.patch_size = 4, .hidden_size = 128, .intermediate_size = 320, .latent_size = 32},
    .hidden_size = 192,
    .intermediate_size = 512,
    .num_hidden_layers = 4,
    .num_attention_heads = 6,
    .num_key_value_heads = 6,
    .head = {.num_mlp_layers = 2}};

calm::apps::recipes defaults() {
    calm::apps::recipes r;       // Muon and the learning rates of `tiny`, where the command line says nothing
    r.autoencoder.steps = 1500;  // learning_rate, warmup, batch_tokens, objective.kl_weight, random_patches, ...
    r.calm.steps = 3000;         // learning_rate, warmup, sequences, objective = energy_objective{...}, ...
    return r;
}

bool const registered = calm::apps::compile_configuration<mine>("mine", defaults());

}  // namespace
