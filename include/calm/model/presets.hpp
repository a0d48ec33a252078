#pragma once
/// \file
/// Configurations by name: small ones for a CPU, and the published ones.
/// \shows{tests/model/presets_test.cpp,published_models_have_the_published_parameters}

#include "calm/model/config.hpp"
#include "calm/model/heads/energy.hpp"

namespace calm::presets {

/// The smallest configuration that learns to generate text.
inline constexpr configuration<> tiny{.autoencoder = {.vocab_size = 512,
                                                      .patch_size = 4,
                                                      .hidden_size = 128,
                                                      .intermediate_size = 320,
                                                      .latent_size = 32},
                                      .hidden_size = 128,
                                      .intermediate_size = 352,
                                      .num_hidden_layers = 3,
                                      .num_attention_heads = 4,
                                      .num_key_value_heads = 4,
                                      .head = {.num_mlp_layers = 3}};

/// Twice as wide and twice as deep as tiny.
inline constexpr configuration<> text{.autoencoder = {.vocab_size = 4096,
                                                      .patch_size = 4,
                                                      .hidden_size = 256,
                                                      .intermediate_size = 640,
                                                      .latent_size = 64},
                                      .hidden_size = 256,
                                      .intermediate_size = 704,
                                      .num_hidden_layers = 6,
                                      .num_attention_heads = 4,
                                      .num_key_value_heads = 4,
                                      .head = {.num_mlp_layers = 3}};

/// The published autoencoder with a backbone of half the width and depth of calm_m.
inline constexpr configuration<> small{.autoencoder = {.vocab_size = 32768},
                                       .hidden_size = 512,
                                       .intermediate_size = 1376,
                                       .num_hidden_layers = 8,
                                       .num_attention_heads = 8,
                                       .num_key_value_heads = 8,
                                       .head = {.num_mlp_layers = 3}};

/// CALM-M, the smallest published model: 371.7 million parameters without its autoencoder.
inline constexpr configuration<> calm_m{.autoencoder = {.vocab_size = 128257},
                                        .hidden_size = 1024,
                                        .intermediate_size = 2752,
                                        .num_hidden_layers = 16,
                                        .num_attention_heads = 16,
                                        .num_key_value_heads = 16,
                                        .head = {.num_mlp_layers = 4}};

/// CALM-L, 735.3 million parameters. The paper does not state its attention heads: 16 is the number of CALM-M, and a
/// checkpoint with another number is refused by name.
inline constexpr configuration<> calm_l = [] {
    auto c = calm_m;
    c.hidden_size = 1536;
    c.intermediate_size = 4096;
    return c;
}();

/// CALM-XL, 1829.8 million parameters. Attention heads as in calm_l.
inline constexpr configuration<> calm_xl = [] {
    auto c = calm_m;
    c.hidden_size = 2560;
    c.intermediate_size = 6880;
    return c;
}();

}  // namespace calm::presets
