#pragma once
// The sizes of all configurations, shared by programs and benchmarks.

#include "calm/model/heads.hpp"
#include "calm/model/presets.hpp"

namespace calm::apps::sizes {

using presets::calm_m;
using presets::small;
using presets::text;
using presets::tiny;

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
