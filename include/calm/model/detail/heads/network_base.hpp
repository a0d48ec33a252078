#pragma once
// What the networks of the library's heads share: the types of their interface, and the loss of many positions in
// chunks. Sizes: R positions, N samples per position; sample n of position r is row r N + n.

#include <algorithm>

#include "calm/model/detail/heads/at_once.hpp"
#include "calm/model/head_network.hpp"

namespace calm::detail {

// The base of a head's Network, which has
//   numbers_per_sample          elements of memory per sample during training, in ctx.saved and ctx.workspace
//   draw_noise(ctx, in, objective, first)
//                               the noise of R positions; position r has index first + r in the step; in ctx.saved
//   loss_and_gradient(ctx, total, in, out, objective, noise)
//                               the losses of R positions with given noise, all at once; restores ctx.saved
// and an objective that `require_allowed` checks.
template <model_configuration auto C, class Space, class Network> struct head_network_base {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    using scalar = T;
    using backend = Backend;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.autoencoder.latent_size;
    using objective = typename decltype(C.head)::objective;  // settings of the loss
    using inputs_type = head_inputs<C, Space>;
    using gradients_type = head_gradients<C, Space>;
    using hidden_view = matrix_view<T const, D, Backend>;    // (R, D)
    using const_latents = matrix_view<T const, L, Backend>;  // (R, L) or (R N, L)
    using latents = matrix_view<T, L, Backend>;              // (R N, L)

    head_network_base() = default;
    // For V token ids, on which most networks do not depend.
    explicit head_network_base(index_t) {}

    // Rows per position in training, of numbers_per_sample elements each.
    static index_t rows_per_position(objective const& o) { return o.samples; }

    // total += the losses of R positions with keyed noise; position r has index first + r in the step. out.dhidden
    // (R, D) is overwritten, parameter gradients accumulate. Runs in chunks of positions that fit into the cache, and
    // restores ctx.saved on return. Throws errc::usage if the objective exceeds its limits.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                           gradients_type const& out, objective const& o, rng_counter first) {
        require_allowed(o);
        auto& network = static_cast<Network&>(*this);
        index_t const positions = in.hidden.extent(0);
        index_t const chunk = positions_at_once<T>(ctx, Network::rows_per_position(o), Network::numbers_per_sample);
        for (index_t r0 = 0; r0 < positions; r0 += chunk) {
            arena_scope const scope(ctx.saved);
            index_t const n = std::min(chunk, positions - r0);
            auto const part = in.part(r0, n);
            network.loss_and_gradient(ctx, total, part, out.part(r0, n), o,
                                      network.draw_noise(ctx, part, o, first + r0));
        }
    }
};

}  // namespace calm::detail
