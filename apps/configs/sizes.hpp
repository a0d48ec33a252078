#pragma once
// The sizes of all configurations, shared by programs and benchmarks.

#include "calm/model/heads.hpp"

namespace calm::apps::sizes {

// The smallest configuration that learns to generate text.
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

// Twice as wide and twice as deep.
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

// The published autoencoder with a backbone of half the published width and depth.
inline constexpr configuration<> small{.autoencoder = {.vocab_size = 32768},
                                       .hidden_size = 512,
                                       .intermediate_size = 1376,
                                       .num_hidden_layers = 8,
                                       .num_attention_heads = 8,
                                       .num_key_value_heads = 8,
                                       .head = {.num_mlp_layers = 3}};

// The smallest published CALM.
inline constexpr configuration<> calm_m{.autoencoder = {.vocab_size = 128257},
                                        .hidden_size = 1024,
                                        .intermediate_size = 2752,
                                        .num_hidden_layers = 16,
                                        .num_attention_heads = 16,
                                        .num_key_value_heads = 16,
                                        .head = {.num_mlp_layers = 4}};

// tiny with patches of K tokens and the same latent size per token.
constexpr configuration<> tiny_of(index_t K) {
    auto c = tiny;
    c.autoencoder.latent_size = tiny.autoencoder.latent_size / tiny.autoencoder.patch_size * K;
    c.autoencoder.patch_size = K;
    return c;
}
inline constexpr configuration<> tiny_k1 = tiny_of(1);
inline constexpr configuration<> tiny_k2 = tiny_of(2);  // smaller patches, twice the steps
inline constexpr configuration<> tiny_k8 = tiny_of(8);

// tiny with another head of the same depth.
inline constexpr configuration<flow> tiny_flow = with_head(tiny, flow{.num_mlp_layers = 3});
inline constexpr configuration<diffusion> tiny_diffusion = with_head(tiny, diffusion{.num_mlp_layers = 3});
inline constexpr configuration<drafted> tiny_drafted = with_head(tiny, drafted{.num_mlp_layers = 3});
inline constexpr configuration<drafted> tiny_k2_drafted = with_head(tiny_k2, tiny_drafted.head);
inline constexpr configuration<drafted> text_drafted = with_head(text, drafted{.num_mlp_layers = 3});
inline constexpr configuration<margin> tiny_margin = with_head(tiny, margin{});

// The autoregressive model on the backbone of tiny.
inline constexpr autoregressive_configuration tiny_ar{.llama = llama_sizes_of(tiny), .vocab_size = 512};

}  // namespace calm::apps::sizes
