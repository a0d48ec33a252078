#pragma once
// Configurations that train in milliseconds, a large one, and helpers for their models.

#include <vector>

#include "calm/model/config.hpp"
#include "calm/nn/param.hpp"

namespace calm::test {

// K 2, for training in float.
inline constexpr configuration<> small{
    .autoencoder = {.vocab_size = 11, .patch_size = 2, .hidden_size = 16, .intermediate_size = 24, .latent_size = 8},
    .hidden_size = 16,
    .intermediate_size = 24,
    .num_hidden_layers = 1,
    .num_attention_heads = 2,
    .num_key_value_heads = 1,
    .head = {.num_mlp_layers = 1, .noise_size = 8}};

// K 2, the fewest weights, for models that are saved often.
inline constexpr configuration<> smallest{
    .autoencoder = {.vocab_size = 7, .patch_size = 2, .hidden_size = 4, .intermediate_size = 6, .latent_size = 3},
    .hidden_size = 8,
    .intermediate_size = 10,
    .num_hidden_layers = 1,
    .num_attention_heads = 2,
    .num_key_value_heads = 1,
    .head = {.num_mlp_layers = 1, .noise_size = 5}};

// K 2, for gradients in double and on every device.
inline constexpr configuration<> uneven{
    .autoencoder = {.patch_size = 2, .hidden_size = 8, .intermediate_size = 12, .latent_size = 4},
    .hidden_size = 12,
    .intermediate_size = 16,
    .num_hidden_layers = 2,
    .num_attention_heads = 2,
    .num_key_value_heads = 1,
    .head = {.num_mlp_layers = 2, .noise_size = 6}};

// The sizes of calm-m, the smallest published model: for counting only, not for running.
inline constexpr configuration<> published_m{.autoencoder = {.vocab_size = 128257},
                                             .hidden_size = 1024,
                                             .intermediate_size = 2752,
                                             .num_hidden_layers = 16,
                                             .num_attention_heads = 16,
                                             .num_key_value_heads = 16,
                                             .head = {.num_mlp_layers = 4}};

// The values of all parameters, in the order of visit.
template <class Model> std::vector<float> weights_of(Model& model) {
    std::vector<float> all;
    for (auto const& p : parameters_of(model)) all.insert(all.end(), p.value.begin(), p.value.end());
    return all;
}

}  // namespace calm::test
