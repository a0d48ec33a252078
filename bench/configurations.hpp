#pragma once
// The configurations that the benchmarks run, with the batch of one step: the sizes of the oracle's configs.json.

#include "calm/loss/energy_score.hpp"
#include "calm/model/calm.hpp"

namespace bench {

struct batch {
    calm::index_t autoencoder_tokens;  // R K of an autoencoder step
    calm::index_t sequences;           // B of a language model's step
    calm::index_t patches;             // P
    calm::energy_objective objective;
};

inline constexpr calm::configuration tiny{.autoencoder = {.vocab_size = 512,
                                                          .patch_size = 4,
                                                          .hidden_size = 128,
                                                          .intermediate_size = 320,
                                                          .latent_size = 32},
                                          .hidden_size = 128,
                                          .intermediate_size = 352,
                                          .num_hidden_layers = 3,
                                          .num_attention_heads = 4,
                                          .num_key_value_heads = 4,
                                          .num_mlp_layers = 3};
inline constexpr batch tiny_batch{4096, 16, 64, {.samples = 8, .targets = 32}};

inline constexpr calm::configuration text{.autoencoder = {.vocab_size = 4096,
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
inline constexpr batch text_batch{4096, 4, 128, {.samples = 8, .targets = 32}};

}  // namespace bench
