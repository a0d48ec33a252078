#pragma once
// The configurations that the benchmarks run, as in the programs and bench/reference/configs.json, with the batch of
// one step. Each is also timed as an autoregressive model of equal sizes.

#include "../apps/configs/sizes.hpp"
#include "calm/model/heads/energy.hpp"

namespace bench {

// The batch of one step.
struct batch {
    calm::index_t autoencoder_tokens;  // R K in an autoencoder step
    calm::index_t sequences;           // B in a language model's step
    calm::index_t patches;             // P
    calm::energy_objective objective;
    calm::index_t ar_sequences;  // B in an autoregressive model's step
    calm::index_t ar_tokens;     // P per sequence
};

using calm::apps::sizes::calm_m;
using calm::apps::sizes::small;
using calm::apps::sizes::text;
using calm::apps::sizes::tiny;
using calm::apps::sizes::tiny_k1;
using calm::apps::sizes::tiny_k2;
using calm::apps::sizes::tiny_k8;
inline constexpr batch tiny_batch{4096, 16, 64, {.samples = 8, .targets = 32}, 4, 256};
inline constexpr batch text_batch{4096, 4, 128, {.samples = 8, .targets = 32}, 4, 256};
inline constexpr batch small_batch{2048, 2, 256, {.samples = 8, .targets = 100}, 4, 256};
inline constexpr batch calm_m_batch{16384, 4, 2048, {.samples = 8, .targets = 100}, 4, 2048};

}  // namespace bench
