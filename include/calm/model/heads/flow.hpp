#pragma once
// Flow matching (Lipman et al. 2023; Flow matching in docs/mathematics.md): a network learns the velocity of straight
// paths from noise to targets, and a sample follows it. Sizes: R positions, N samples a position; samples of one
// position are neighbours: row r N + n.

#include <span>
#include <string_view>

#include "calm/model/config.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/heads/adaln.hpp"
#include "calm/model/heads/paired.hpp"
#include "calm/model/limits.hpp"
#include "calm/tensor/fill_places.hpp"

namespace calm {

// How samples follow their paths: by the velocity where a step begins, Euler's rule, or half a step later, the midpoint
// rule.
struct flow_sampling {
    index_t steps = 10;  // equal ones, 1 to 1000
    index_t order = 2;   // of the rule: 1 Euler's, 2 the midpoint rule

    // Of the network.
    [[nodiscard]] constexpr index_t evaluations() const { return order * steps; }
    // Names every number.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(
            number_field{
                .key = "steps", .what = "steps of a sample", .least = 1, .most = path_steps, .option = "steps"},
            self.steps);
        visitor(number_field{.key = "order",
                             .what = "evaluations a step: 1 Euler's rule, 2 the midpoint rule",
                             .least = 1,
                             .most = 2,
                             .option = "order"},
                self.order);
    }
};

template <model_configuration auto C, class Space> struct flow_head;

// The flow head: its size, and its names.
struct flow {
    index_t num_mlp_layers = 4;  // blocks

    static constexpr std::string_view name = "flow";                     // on command lines and in files
    static constexpr std::string_view architecture = "FlowTransformer";  // in files
    static constexpr std::string_view type = "calm::flow";               // what C++ calls it
    using objective = paired_objective;                                  // N
    using sampling = flow_sampling;                                      // steps and their rule
    // The network.
    template <model_configuration auto C, class Space> using layer = flow_head<C, Space>;

    // Of the products; of a sample that is drawn alone: others of its position share its modulation.
    [[nodiscard]] constexpr head_flops flops(head_surroundings const& at) const {
        double const once = flops::adaln_sample(at.L, at.D, 1, num_mlp_layers);
        return {.shared = flops::adaln_shared(at.D),
                .trained = flops::adaln_trained(at.L, at.D, 1, num_mlp_layers),
                .drawn = static_cast<double>(flow_sampling{}.evaluations()) * once};
    }
    // Of the network.
    void tensors(head_surroundings const& at, tensor_shapes& to) const {
        to.inside("net", [&] { detail::add_adaln_tensors(to, at, 1, num_mlp_layers); });
    }
    // Names every size.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(
            number_field{
                .key = "num_mlp_layers", .what = "blocks", .least = 1, .most = limits::layers, .required = true},
            self.num_mlp_layers);
    }
    friend constexpr bool operator==(flow const&, flow const&) = default;
};

// N samples of the next latent of each of R hidden states, each at the end of a path that begins in noise, and the loss
// of their velocities. The network starts at zero: a path stays where it begins at first.
template <model_configuration auto C, class Space = space<>> struct flow_head {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    using backend = Backend;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.autoencoder.latent_size;
    static constexpr std::size_t depth = static_cast<std::size_t>(C.head.num_mlp_layers);  // blocks
    // What a sample takes while it trains: of saved and of scratch.
    static constexpr index_t numbers_per_sample = adaln_network<L, D, 1, depth, Space>::numbers_per_sample + 7 * L;
    using objective = paired_objective;                      // N
    using hidden_view = matrix_view<T const, D, Backend>;    // (R, D)
    using const_latents = matrix_view<T const, L, Backend>;  // (R, L) or (R N, L)
    using latents = matrix_view<T, L, Backend>;              // (R N, L)
    using noise_type = paired_noise<T, L, Backend>;          // of R N samples

    adaln_network<L, D, 1, depth, Space> net;  // the velocity at a step
    flow_sampling sampling;                    // how `sample` follows paths

    // z (R N, L): N samples of every hidden state (R, D), from noise at their places (R), times `scale`: number i of a
    // key is its normals i L .. i L + L - 1. What it needs of ctx.saved is given back. Throws as follow does.
    void sample(context<Backend>& ctx, latents const& z, hidden_view const& hidden, std::span<noise_place const> places,
                double scale = 1) const {
        arena_scope const of_places(ctx.scratch);
        fill_normal(ctx, z, bring(ctx, places));
        if (scale != 1) evaluate(ctx, z, z * scale);
        follow(ctx, z, hidden);
    }

    // z (R N, L), where paths begin, becomes where they end, under hidden states (R, D). Throws errc::usage for no
    // steps or another order.
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
            // Times are fp32, as published: their rounding decides the step that the network sees.
            auto const time = static_cast<float>(static_cast<double>(i) / static_cast<double>(sampling.steps));
            if (sampling.order == 2) {
                move(middle, z, z, time, 0.5 * dt);
                move(z, z, middle, time + static_cast<float>(0.5 * dt), dt);
            } else {
                move(z, z, z, time, dt);
            }
        }
    }

    // total += the losses of R positions, with keyed noise: position r draws as position first + r of the step.
    // Gradients of scale * sum: dhidden (R, D) is overwritten, the parameters' accumulate; an empty dhidden asks for
    // none. Works in chunks of positions that stay in the cache, and gives back what it takes of ctx.saved.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, hidden_view const& hidden,
                           const_latents const& mean, const_latents const& log_std,
                           matrix_view<T, D, Backend> const& dhidden, objective const& o, draw_number first,
                           double scale) {
        train_paired(ctx, total, *this, hidden, mean, log_std, dhidden, o, first, scale);
    }

    // The same with given noise. The loss of a sample is the mean over L of |v - (target - start)|^2 at a time of its
    // path.
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
