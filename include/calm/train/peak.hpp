#pragma once
// How fast the machine multiplies matrices, measured, and how many operations a step asks of it, counted.

#include <algorithm>
#include <chrono>

#include "calm/model/config.hpp"
#include "calm/tensor/matmul.hpp"

namespace calm {

// FLOP/s of the fastest of some fp32 products that together take about `seconds`, with the threads of the context: what
// a step could reach if it were nothing but products of a good shape. Uses ctx.scratch and gives it back.
inline double measure_peak(context<cpu>& ctx, double seconds = 0.05) {
    constexpr index_t rows = 512;
    constexpr index_t width = 512;
    arena_scope const scope(ctx.scratch);
    auto const x = ctx.scratch.take<float>(extents<dyn, width>(rows));
    auto const w = ctx.scratch.take<float>(extents<dyn, width>(width));
    auto const y = ctx.scratch.take<float>(extents<dyn, width>(rows));
    std::fill_n(x.data(), x.size(), 1.0F);
    std::fill_n(w.data(), w.size(), 1.0F);
    using clock = std::chrono::steady_clock;
    auto const seconds_since = [](clock::time_point t) {
        return std::chrono::duration<double>(clock::now() - t).count();
    };
    auto const start = clock::now();
    double best = seconds + 1.0;
    for (int round = 0; round < 16 || seconds_since(start) < seconds; ++round) {
        auto const begin = clock::now();
        matmul(ctx, y, x, transposed(w));
        best = std::min(best, seconds_since(begin));
    }
    return 2.0 * static_cast<double>(rows * width * width) / best;
}

// Floating-point operations of the matrix products in one training step, a patch: forward, and twice as many backward.
// Norms, activations and random numbers are not counted. V vocabulary, P positions a sequence, N samples.
struct step_flops {
    // Encoder alone, forward.
    static constexpr double encoder(autoencoder_configuration const& c) {
        return product(c.num_encoder_layers / 2 * (c.patch_size + 1), c.hidden_size, 3 * c.intermediate_size) +
               product(1, c.patch_size * c.hidden_size, c.hidden_size) + product(1, c.hidden_size, 2 * c.latent_size);
    }
    static constexpr double autoencoder(autoencoder_configuration const& c, index_t V) {
        double const decoder =
            product(1, c.latent_size, c.hidden_size) +
            product(c.num_decoder_layers / 2 * (c.patch_size + 1), c.hidden_size, 3 * c.intermediate_size) +
            product(1, c.hidden_size, c.patch_size * c.hidden_size) + product(c.patch_size, c.hidden_size, V);
        return 3 * (encoder(c) + decoder);
    }
    // The frozen encoder runs forward only; the energy head's shared part counts once a position.
    static constexpr double calm(configuration const& c, index_t P, index_t N) {
        index_t const D = c.hidden_size;
        index_t const kv = D / c.num_attention_heads * c.num_key_value_heads;
        double const projection = product(1, c.autoencoder.patch_size * D, 2 * D) + product(1, 2 * D, D);
        double const layer =
            product(2, D, D) + product(2, D, kv) + product(P, D, 1) + product(1, D, 3 * c.intermediate_size);
        double const shared = product(1 + c.num_mlp_layers, D, D);
        double const sample = product(1, c.noise_size, D) + product(5 * c.num_mlp_layers + 1, D, D) +
                              product(1, D, c.autoencoder.latent_size);
        return encoder(c.autoencoder) + 3 * (projection + static_cast<double>(c.num_hidden_layers) * layer + shared +
                                             static_cast<double>(N) * sample);
    }

private:
    static constexpr double product(index_t m, index_t k, index_t n) {
        return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
    }
};

}  // namespace calm
