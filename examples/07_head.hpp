#pragma once
// The network of a custom head: it guesses the next latent, and samples scatter around the guess.
#include <span>

#include "calm/model.hpp"

template <calm::model_configuration auto C, class Space> struct guessing_head {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr calm::index_t D = C.hidden_size, L = C.autoencoder.latent_size, H = C.head.inner_size;
    template <calm::index_t In, calm::index_t Out> using linear = calm::linear<In, Out, calm::with_bias::yes, Space>;

    calm::sequential<linear<D, H>, calm::silu_layer<H, Space>, linear<H, L>> network;

    explicit guessing_head(calm::index_t) {}  // the network does not depend on the vocabulary

    // Adds the sum of |guess - mean|^2 over R positions to `total`. If gradients are wanted, also backpropagates
    // out.scale times that sum.
    void loss_and_gradient(calm::context<Backend>& ctx, calm::total_view<Backend> const& total,
                           calm::head_inputs<C, Space> const& in, calm::head_gradients<C, Space> const& out,
                           typename decltype(C.head)::objective, calm::rng_counter) {
        calm::arena_scope const saved(ctx.saved), workspace(ctx.workspace);
        auto const g = network.forward(ctx, in.hidden);
        if (out.wanted()) {
            auto const dg = ctx.workspace.template take<T>(g.y.extents());
            differentiate_sum(ctx, square(wrt(g.y, dg) - in.mean), out.scale);
            network.backward(ctx, g, dg, out.dhidden);
        }
        add_sum(ctx, total, square(g.y - in.mean));
    }
    // z (R N, L): N samples for each of R positions. rngs[r] has the RNG key and counter of position r.
    void sample(calm::context<Backend>& ctx, calm::matrix_view<T, L, Backend> const& z,
                calm::head_inputs<C, Space> const& in, std::span<calm::row_rng const> rngs,
                double noise_scale = 1) const {
        calm::arena_scope const saved(ctx.saved);
        auto const y = network.forward(ctx, in.hidden).y;
        for (calm::index_t i = 0, N = z.extent(0) / y.extent(0); i < z.extent(0); ++i) {
            auto const& [draws, first] = rngs[static_cast<std::size_t>(i / N)];
            fill_normal(ctx, rows(z, i, 1), draws, static_cast<std::uint64_t>((first + i % N) * L));
            evaluate(ctx, rows(z, i, 1), rows(y, i / N, 1) + rows(z, i, 1) * (0.1 * noise_scale));
        }
    }
    template <class Visitor> void visit(Visitor& visitor) { visit_as("network", network, visitor); }
};
