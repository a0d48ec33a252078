#pragma once
// The interface that calm_model requires of a head's network: loss, sampling, parameters.

#include <span>

#include "calm/model/head.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/rng_counter.hpp"
#include "calm/tensor/core/row_rng.hpp"
#include "calm/tensor/ops/row_ids.hpp"
#include "calm/tensor/ops/total.hpp"

namespace calm {

namespace detail {

// Operands of a head network, with hidden states of width D and latents of width L.
template <class Space, index_t D, index_t L> struct head_operands {
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    context<Backend>& ctx;
    total_view<Backend> const& total;
    matrix_view<T const, D, Backend> const& hidden;
    matrix_view<T const, L, Backend> const& posterior;  // posterior means, or log standard deviations
    matrix_view<T, D, Backend> const& dhidden;
    matrix_view<T, L, Backend> const& z;
    row_ids<Backend> const& labels;
    std::span<row_rng const> places;
    rng_counter first;
    double scale;
};

struct any_visitor {
    template <class Part> void operator()(char const*, Part&) const {}
};

}  // namespace detail

// The network of a Head in a Space, with hidden states of width D and latents of width L:
//   loss_and_gradient(ctx, total, hidden, mean, log_std, dhidden, objective, first, scale)
//                               adds the losses of R positions to total, and scale times their gradients
//   sample(ctx, z, hidden, places, noise_scale)
//                               draws N latents for each of R hidden states, with noise at its places
//   visit(visitor)              names its parameters, as a layer does
// docs/extending.md has the details. The network of a drafting_head is constructed from the vocabulary size. Its
// `sample` also takes the Autoencoder, after the context. Its `loss_and_gradient` takes the Autoencoder and the tokens
// of the next patches, after the total.
template <class Network, class Head, class Autoencoder, class Space, index_t D, index_t L>
concept head_network = requires(Network& network, Network const& constant, Autoencoder const& ae,
                                detail::head_operands<Space, D, L> const& x, typename Head::objective const& o,
                                detail::any_visitor& visitor) {
    network.visit(visitor);
    requires drafting_head<Head> || requires {
        Network{};
        network.loss_and_gradient(x.ctx, x.total, x.hidden, x.posterior, x.posterior, x.dhidden, o, x.first, x.scale);
        constant.sample(x.ctx, x.z, x.hidden, x.places, x.scale);
    };
    requires !drafting_head<Head> || requires(index_t vocabulary) {
        Network(vocabulary);
        network.loss_and_gradient(x.ctx, x.total, ae, x.labels, x.hidden, x.posterior, x.posterior, x.dhidden, o,
                                  x.first, x.scale);
        constant.sample(x.ctx, ae, x.z, x.hidden, x.places, x.scale);
    };
};

}  // namespace calm
