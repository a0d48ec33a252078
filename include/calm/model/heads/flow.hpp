#pragma once
// Flow matching (Lipman et al. 2023; Flow matching in docs/mathematics.md): a network learns the velocity along
// straight paths from noise to targets; sampling integrates it. Sizes: R positions, N samples per position; sample n of
// position r is row r N + n.

#include <span>
#include <string_view>

#include "calm/model/config.hpp"
#include "calm/model/detail/heads/adaln.hpp"
#include "calm/model/detail/heads/paired.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/flops.hpp"
#include "calm/tensor/ops/fill_places.hpp"

namespace calm {

// How sampling integrates the velocity: by Euler's rule (velocity at the start of each step) or the midpoint rule.
struct flow_sampling {
    index_t steps = 10;  // equal steps, 1 to 1000
    index_t order = 2;   // 1: Euler's rule; 2: midpoint rule

    // Number of network evaluations.
    [[nodiscard]] constexpr index_t evaluations() const { return order * steps; }
    // Visits every field.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(
            number_field{.key = "steps", .what = "steps per sample", .least = 1, .most = path_steps, .option = "steps"},
            self.steps);
        visitor(number_field{.key = "order",
                             .what = "evaluations per step: 1 Euler's rule, 2 the midpoint rule",
                             .least = 1,
                             .most = 2,
                             .option = "order"},
                self.order);
    }
};

template <model_configuration auto C, class Space> struct flow_head;

// The flow head: its size and names.
struct flow {
    index_t num_mlp_layers = 4;  // blocks

    static constexpr std::string_view name = "flow";                     // on command lines and in files
    static constexpr std::string_view architecture = "FlowTransformer";  // in files
    static constexpr std::string_view type = "calm::flow";               // C++ type name
    using objective = paired_objective;                                  // N
    using sampling = flow_sampling;                                      // steps and integration rule
    // The head's network.
    template <model_configuration auto C, class Space> using layer = flow_head<C, Space>;

    // FLOPs of the products. `drawn` is for a single sample; further samples share its modulation.
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        double const once = flops::adaln_sample(at.L, at.D, 1, num_mlp_layers);
        return {.shared = flops::adaln_shared(at.D),
                .trained = flops::adaln_trained(at.L, at.D, 1, num_mlp_layers),
                .drawn = static_cast<double>(flow_sampling{}.evaluations()) * once};
    }
    // Tensors of the network.
    void tensors(head_dimensions const& at, tensor_shapes& to) const {
        to.inside("net", [&] { detail::add_adaln_tensors(to, at, 1, num_mlp_layers); });
    }
    // Visits every size.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(
            number_field{
                .key = "num_mlp_layers", .what = "blocks", .least = 1, .most = limits::layers, .required = true},
            self.num_mlp_layers);
    }
    friend constexpr bool operator==(flow const&, flow const&) = default;
};

// Draws N samples of the next latent for each of R hidden states, by following paths that start from noise; the loss
// compares velocities. The network is initialised to zero, so at first paths do not move.
template <model_configuration auto C, class Space = space<>> struct flow_head {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    using backend = Backend;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.autoencoder.latent_size;
    static constexpr std::size_t depth = static_cast<std::size_t>(C.head.num_mlp_layers);  // blocks
    // Elements of memory per sample during training, in ctx.saved and ctx.workspace.
    static constexpr index_t numbers_per_sample = adaln_network<L, D, 1, depth, Space>::numbers_per_sample + 7 * L;
    using objective = paired_objective;                      // N
    using hidden_view = matrix_view<T const, D, Backend>;    // (R, D)
    using const_latents = matrix_view<T const, L, Backend>;  // (R, L) or (R N, L)
    using latents = matrix_view<T, L, Backend>;              // (R N, L)
    using noise_type = paired_noise<T, L, Backend>;          // for R N samples

    adaln_network<L, D, 1, depth, Space> net;  // predicts the velocity
    flow_sampling sampling;                    // settings of `sample`

    // z (R N, L): draws N samples for every hidden state (R, D). The noise comes from each row's places (R), times
    // `scale`; sample i of a key uses its normals i L .. i L + L - 1. Restores ctx.saved on return. Throws as follow
    // does.
    void sample(context<Backend>& ctx, latents const& z, hidden_view const& hidden, std::span<row_rng const> places,
                double scale = 1) const {
        arena_scope const of_places(ctx.workspace);
        fill_normal(ctx, z, to_device(ctx, places));
        if (scale != 1) evaluate(ctx, z, z * scale);
        follow(ctx, z, hidden);
    }

    // Moves z (R N, L) from the start to the end of its paths, given hidden states (R, D). Throws errc::usage for fewer
    // than one step or an unknown order.
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

    // total += the losses of R positions with keyed noise; position r has index first + r in the step. Gradients of
    // scale * sum: dhidden (R, D) is overwritten, parameter gradients accumulate; an empty dhidden skips them. Runs in
    // chunks of positions that fit into the cache, and restores ctx.saved on return.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, hidden_view const& hidden,
                           const_latents const& mean, const_latents const& log_std,
                           matrix_view<T, D, Backend> const& dhidden, objective const& o, rng_counter first,
                           double scale) {
        train_paired(ctx, total, *this, hidden, mean, log_std, dhidden, o, first, scale);
    }

    // With given noise. Each sample's loss is the mean over L of |v - (target - start)|^2 at one time on its path.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, hidden_view const& hidden,
                           const_latents const& mean, const_latents const& log_std,
                           matrix_view<T, D, Backend> const& dhidden, noise_type const& noise, double scale) {
        arena_scope const scope(ctx.saved);
        auto const target = paired_targets(ctx, mean, log_std, noise.targets);
        auto const& start = noise.samples;
        auto const x = ctx.saved.template take<T>(start.extents());
        auto const steps = ctx.saved.template take<std::int32_t>(extents<dyn>(noise.count()));
        for_each(ctx, noise.count(), detail::path_steps_of<T>{steps.data(), noise.times.data()});
        auto const t = reshape(noise.times, extents<dyn, 1>(noise.count()));
        evaluate(ctx, x, (1.0 - column(t)) * start + column(t) * target);
        auto const s = net.forward(ctx, x, steps, hidden);
        auto const& v = s.y[0];
        double const weight = noise.weight(hidden.extent(0));
        add_sum(ctx, total, square(v - (target - start)), weight);
        if (dhidden.data() != nullptr) {
            differentiate_sum(ctx, square(wrt(v, v) - (target - start)), scale * weight);
            net.backward(ctx, s, s.y, dhidden);
        }
    }

    template <class Visitor> void visit(Visitor& visitor) { visit_as("net", net, visitor); }
};

}  // namespace calm
