#pragma once
/// \file
/// Flow matching (Lipman et al. 2023; Flow matching in docs/mathematics/heads.md): a network learns the velocity along
/// straight paths from noise to targets; sampling integrates it. Sizes: R positions, N samples per position; sample n
/// of position r is row r N + n.
/// \shows{tests/model/heads_flow_test.cpp,a_language_model_trains_and_samples_with_a_flow_head}

#include <span>
#include <string_view>

#include "calm/model/config.hpp"
#include "calm/model/detail/heads/adaln.hpp"
#include "calm/model/detail/heads/paired.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/flops.hpp"
#include "calm/tensor/ops/fill_rows.hpp"

namespace calm {

/// How sampling integrates the velocity: by Euler's rule (velocity at the start of each step) or the midpoint rule.
struct flow_sampling {
    index_t steps = 10;  ///< equal steps, 1 to 1000
    index_t order = 2;   ///< 1: Euler's rule; 2: midpoint rule

    /// Number of network evaluations.
    [[nodiscard]] constexpr index_t evaluations() const { return order * steps; }
    /// Visits every field.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(detail::steps_field, self.steps);
        visitor(number_field{.key = "order",
                             .what = "evaluations per step: 1 Euler's rule, 2 the midpoint rule",
                             .least = 1,
                             .most = 2,
                             .option = "order"},
                self.order);
    }
};

template <model_configuration auto C, class Space> struct flow_head;

/// The flow head: its size and names.
struct flow {
    index_t num_mlp_layers = 4;  ///< blocks

    static constexpr std::string_view name = "flow";                     ///< on command lines and in files
    static constexpr std::string_view architecture = "FlowTransformer";  ///< in files
    static constexpr std::string_view type = "calm::flow";               ///< C++ type name
    using objective = paired_objective;                                  ///< N
    using sampling = flow_sampling;                                      ///< steps and integration rule
    /// The head's network.
    template <model_configuration auto C, class Space> using network = flow_head<C, Space>;

    /// FLOPs of the products.
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        return flops::adaln(at, 1, num_mlp_layers, flow_sampling{}.evaluations());
    }
    /// Tensors of the network.
    void tensors(head_dimensions const& at, tensor_shapes& to) const {
        to.inside("net", [&] { detail::add_adaln_tensors(to, at, 1, num_mlp_layers); });
    }
    /// Visits every size.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(detail::size_field("num_mlp_layers", "blocks", limits::layers), self.num_mlp_layers);
    }
    friend constexpr bool operator==(flow const&, flow const&) = default;
};

/// Draws N samples of the next latent for each of R hidden states, by following paths that start from noise; the loss
/// compares velocities. The network is initialised to zero, so at first paths do not move.
template <model_configuration auto C, class Space = space<>>
struct flow_head : paired_head<C, Space, flow_head<C, Space>> {
    using base = paired_head<C, Space, flow_head>;  ///< types of the interface, loss in chunks, noise
    using base::D, base::L, base::base, base::loss_and_gradient;
    using typename base::T, typename base::Backend, typename base::inputs_type, typename base::gradients_type,
        typename base::objective, typename base::hidden_view, typename base::latents, typename base::noise_type;
    static constexpr std::size_t depth = static_cast<std::size_t>(C.head.num_mlp_layers);  ///< blocks
    /// Elements of memory per sample during training, in ctx.saved and ctx.workspace.
    static constexpr index_t numbers_per_sample = adaln_network<L, D, 1, depth, Space>::numbers_per_sample + 7 * L;

    adaln_network<L, D, 1, depth, Space> net;  ///< predicts the velocity
    flow_sampling sampling;                    ///< settings of `sample`

    /// z (R N, L): draws N samples for every hidden state (R, D). The noise comes from `rngs` (R), one per row, times
    /// `scale`; sample i of a key uses its normals i L .. i L + L - 1. Restores ctx.saved on return. Throws as follow
    /// does.
    void sample(context<Backend>& ctx, latents const& z, inputs_type const& in, std::span<row_rng const> rngs,
                double scale = 1) const {
        arena_scope const of_places(ctx.workspace);
        fill_normal(ctx, z, to_device(ctx, rngs));
        if (scale != 1) evaluate(ctx, z, z * scale);
        follow(ctx, z, in.hidden);
    }

    /// Moves z (R N, L) from the start to the end of its paths, given hidden states (R, D). Throws errc::usage for
    /// fewer than one step or an unknown order.
    void follow(context<Backend>& ctx, latents const& z, hidden_view const& hidden) const {
        require(sampling.steps >= 1, errc::usage, "calm::flow_head: expected at least one step of a path, found ",
                sampling.steps);
        require(sampling.order == 1 || sampling.order == 2, errc::usage,
                "calm::flow_head: expected order 1, Euler's rule, or 2, the midpoint rule, found ", sampling.order);
        arena_scope const scope(ctx.saved);
        auto const prepared = net.prepare(ctx, hidden);
        auto const middle = ctx.saved.template take<T>(z.extents());
        double const dt = 1.0 / static_cast<double>(sampling.steps);
        // to = from + span v(at, time)
        auto const move = [&](latents const& to, latents const& from, latents const& at, float time, double span) {
            arena_scope const step(ctx.saved);
            evaluate(ctx, to, from + net.at_step(ctx, at, path_step(time), prepared)[0] * span);
        };
        for (index_t i = 0; i < sampling.steps; ++i) {
            // Times are fp32 as published, because rounding affects the step that the network sees.
            auto const time = static_cast<float>(static_cast<double>(i) / static_cast<double>(sampling.steps));
            if (sampling.order == 2) {
                move(middle, z, z, time, 0.5 * dt);
                move(z, z, middle, time + static_cast<float>(0.5 * dt), dt);
            } else {
                move(z, z, z, time, dt);
            }
        }
    }

    /// With given noise. Each sample's loss is the mean over L of |v - (target - start)|^2 at one time on its path.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                           gradients_type const& out, objective const&, noise_type const& noise) {
        arena_scope const scope(ctx.saved);
        auto const target = this->targets(ctx, in, noise);
        auto const& start = noise.samples;
        auto const x = ctx.saved.template take<T>(start.extents());
        auto const steps = ctx.saved.template take<std::int32_t>(extents<dyn>(noise.count()));
        for_each(ctx, noise.count(), detail::path_steps_of<T>{steps.data(), noise.times.data()});
        auto const t = reshape(noise.times, extents<dyn, 1>(noise.count()));
        evaluate(ctx, x, (1.0 - column(t)) * start + column(t) * target);
        auto const s = net.forward(ctx, x, steps, in.hidden);
        auto const& v = s.y[0];
        double const weight = noise.weight(in.hidden.extent(0));
        add_sum(ctx, total, square(v - (target - start)), weight);
        if (out.wanted()) {
            differentiate_sum(ctx, square(wrt(v, v) - (target - start)), out.scale * weight);
            net.backward(ctx, s, s.y, out.dhidden);
        }
    }

    template <class Visitor> void visit(Visitor& visitor) { visit_as("net", net, visitor); }
};

}  // namespace calm
