#pragma once
/// \file
/// The interface between calm_model and the network of a head: one bundle of inputs, one of gradients.
/// \shows{examples/07_head.hpp,guessing_head}

#include <span>

#include "calm/model/autoencoder.hpp"
#include "calm/model/head.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/rng_counter.hpp"
#include "calm/tensor/core/row_rng.hpp"
#include "calm/tensor/ops/row_ids.hpp"
#include "calm/tensor/ops/total.hpp"

namespace calm {

/// What a head reads at R positions.
template <model_configuration auto C, class Space = space<>> struct head_inputs {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr index_t L = C.autoencoder.latent_size;

    matrix_view<T const, D, Backend> hidden{};  ///< (R, D), hidden states
    /// The patch after each position, for the loss; empty in `sample`.
    matrix_view<T const, L, Backend> mean{};     ///< (R, L), mean of its posterior
    matrix_view<T const, L, Backend> log_std{};  ///< (R, L), log of the posterior's standard deviation
    row_ids<Backend> labels{};                   ///< (R K), its tokens
    /// Frozen; calm_model always gives it.
    calm::autoencoder<C.autoencoder, Space> const* autoencoder = nullptr;

    /// Positions first .. first + n - 1, for the loss.
    [[nodiscard]] head_inputs part(index_t first, index_t n) const {
        return {rows(hidden, first, n), rows(mean, first, n), rows(log_std, first, n),
                labels.size() == 0 ? labels : labels.part(first * K, n * K), autoencoder};
    }
};

/// Where a head writes the gradients of scale times the sum of its R losses.
template <model_configuration auto C, class Space = space<>> struct head_gradients {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t D = C.hidden_size;

    matrix_view<T, D, Backend> dhidden{};  ///< (R, D), overwritten; empty: only the losses are computed
    double scale = 1;                      ///< factor of the losses

    /// Whether gradients are computed.
    [[nodiscard]] bool wanted() const { return dhidden.data() != nullptr; }
    /// Positions first .. first + n - 1.
    [[nodiscard]] head_gradients part(index_t first, index_t n) const {
        return {wanted() ? rows(dhidden, first, n) : dhidden, scale};
    }
};

namespace detail {

// Operands of a head's network.
template <auto C, class Space> struct head_operands {
    using Backend = typename Space::backend;
    context<Backend>& ctx;
    total_view<Backend> const& total;
    head_inputs<C, Space> const& in;
    head_gradients<C, Space> const& out;
    typename decltype(C.head)::objective const& objective;
    rng_counter first;
    matrix_view<typename Space::scalar, C.autoencoder.latent_size, Backend> const& z;
    std::span<row_rng const> rngs;
    double noise_scale;
};

struct any_visitor {
    template <class Part> void operator()(char const*, Part&) const {}
};

}  // namespace detail

/// The network of the head of a configuration C in a Space:
/// - `Network(vocabulary)`: for V token ids, without memory until `allocate`
/// - `loss_and_gradient(ctx, total, in, out, objective, first)`: adds the losses of R positions to total, and their
///   gradients to the gradients of the parameters. Position r has index first + r in the step, which determines its
///   noise
/// - `sample(ctx, z, in, rngs, noise_scale)`: z (R N, L): draws N = z.extent(0) / R latents for each of R hidden
///   states, with noise from `rngs` (R). noise_scale multiplies the noise: sqrt(T) with the sampler `noise`, else 1.
///   Releases what it takes from ctx.saved and ctx.workspace
/// - `visit(visitor)`: names its parameters, as a layer does
///
/// docs/extending.md has the details.
template <class Network, auto C, class Space>
concept head_network = requires(Network& network, Network const& constant, index_t vocabulary,
                                detail::head_operands<C, Space> const& x, detail::any_visitor& visitor) {
    Network(vocabulary);
    network.loss_and_gradient(x.ctx, x.total, x.in, x.out, x.objective, x.first);
    constant.sample(x.ctx, x.z, x.in, x.rngs, x.noise_scale);
    network.visit(visitor);
};

}  // namespace calm
