#pragma once
/// \file
/// The margin head (Margin head in docs/mathematics/heads.md), a control: each position has one guess, and samples
/// spread around it by a constant that does not depend on the hidden state. Sizes: R positions, N samples per position;
/// sample n of position r is row r N + n.
/// \shows{tests/model/heads_margin_test.cpp,the_flops_of_a_margin_head_follow_from_its_matrices}

#include <span>
#include <string_view>

#include "calm/model/config.hpp"
#include "calm/model/detail/heads/paired.hpp"
#include "calm/model/detail/tensor_shapes.hpp"
#include "calm/model/flops.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/tensor/ops/fill_rows.hpp"

namespace calm {

template <model_configuration auto C, class Space> struct margin_head;

/// The margin head: its names. It has no sizes.
struct margin {
    static constexpr std::string_view name = "margin";                     ///< on command lines and in files
    static constexpr std::string_view architecture = "MarginTransformer";  ///< in files
    static constexpr std::string_view type = "calm::margin";               ///< C++ type name
    using objective = paired_objective;                                    ///< N
    /// The head's network.
    template <model_configuration auto C, class Space> using network = margin_head<C, Space>;

    /// FLOPs of the products: all samples of a position share one guess.
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        return {.shared = flops::product(1, at.D, at.D) + flops::product(1, at.D, at.L), .trained = 0, .drawn = 0};
    }
    /// Tensors of the network.
    void tensors(head_dimensions const& at, tensor_shapes& to) const {
        to.linear("linears.0", at.D, at.D);
        to.linear("linears.2", at.D, at.L);
    }
    /// Visits no sizes.
    template <class Self, class Visitor> static constexpr void visit_fields(Self&, Visitor&&) {}
    friend constexpr bool operator==(margin const&, margin const&) = default;
};

/// Draws N samples of the next latent for each of R hidden states, normal around a guess. The loss asks for targets
/// closer to the guess than samples are.
template <model_configuration auto C, class Space = space<>>
struct margin_head : paired_head<C, Space, margin_head<C, Space>> {
    using base = paired_head<C, Space, margin_head>;  ///< types of the interface, loss in chunks, noise
    using base::D, base::L, base::base, base::loss_and_gradient;
    using typename base::T, typename base::Backend, typename base::inputs_type, typename base::gradients_type,
        typename base::objective, typename base::hidden_view, typename base::latents, typename base::noise_type;
    /// Elements of memory per sample during training, in ctx.saved and ctx.workspace.
    static constexpr index_t numbers_per_sample = 12 * L + 8 * D;
    static constexpr double spread = 1;  ///< s, standard deviation of samples around the guess
    static constexpr double ahead = 1;   ///< margin between squared distances of target and sample
    static constexpr double pull = 0.1;  ///< weight of the guess's mean squared error

    sequential<linear<D, D, with_bias::yes, Space, result_as::activations>,
               relu_layer<D, Space, result_as::activations>, linear<D, L, with_bias::yes, Space>>
        linears;  ///< computes the guess f

    /// z (R N, L): draws N samples f + spread * noise * scale for every hidden state (R, D). The noise comes from
    /// `rngs` (R), one per row; sample i of a key uses its normals i L .. i L + L - 1. Restores ctx.saved on return.
    void sample(context<Backend>& ctx, latents const& z, inputs_type const& in, std::span<row_rng const> rngs,
                double scale = 1) const {
        arena_scope const scope(ctx.saved);
        auto const f = ctx.saved.template take<T>(z.extents());  // (R N, L)
        repeat_interleave(ctx, f, linears.forward(ctx, in.hidden).y);
        arena_scope const of_places(ctx.workspace);
        fill_normal(ctx, z, to_device(ctx, rngs));
        evaluate(ctx, z, f + z * (spread * scale));
    }

    /// With given noise. The sample x = f + spread * noise is held constant. With target y its loss is
    /// max(0, |f - y|^2 - |f - x|^2 + ahead) + pull * mean over L of (f - y)^2.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                           gradients_type const& out, objective const&, noise_type const& noise) {
        arena_scope const scope(ctx.saved);
        auto const take = [&] { return ctx.saved.template take<T>(noise.samples.extents()); };
        auto const y = this->targets(ctx, in, noise);
        auto const s = linears.forward(ctx, in.hidden);
        auto const f = take();
        auto const x = take();
        auto const nearer = take();
        repeat_interleave(ctx, f, s.y);
        evaluate(ctx, x, f + noise.samples * spread);
        evaluate(ctx, nearer, square(f - y) - square(f - x));
        auto const elements = reshape(nearer, extents<dyn, 1>(nearer.size()));          // (R N L, 1)
        auto const apart = ctx.saved.template take<T>(extents<dyn, 1>(noise.count()));  // (R N, 1)
        segment_sum(ctx, apart, elements);
        double const of_element = noise.weight(in.hidden.extent(0));
        double const of_sample = of_element * static_cast<double>(L);
        {
            arena_scope const of_sum(ctx.workspace);
            auto const both = new_total(ctx);
            add_sum(ctx, both, maximum(0.0, apart + ahead), of_sample);
            add_sum(ctx, both, square(f - y), of_element * pull);
            add_total(ctx, total, both);
        }
        if (out.wanted()) {
            differentiate_sum(ctx, maximum(0.0, wrt(apart, apart) + ahead), out.scale * of_sample);
            repeat_interleave(ctx, elements, apart);  // weight of every difference of squares
            auto const df = take();
            differentiate(ctx, square(wrt(f, df) - y) - square(accumulate(f, df) - x), nearer);
            differentiate_sum(ctx, square(accumulate(f, df) - y), out.scale * of_element * pull);
            auto const dguess = ctx.saved.template take<T>(s.y.extents());  // (R, L)
            segment_sum(ctx, dguess, df);
            linears.backward(ctx, s, dguess, out.dhidden);
        }
    }

    template <class Visitor> void visit(Visitor& visitor) { visit_as("linears", linears, visitor); }
};

}  // namespace calm
