#pragma once
/// \file
/// CALM's energy head (docs/mathematics/energy.md): a single pass maps hidden state and noise to a sample of the next
/// latent, trained by the energy score. Sizes: R positions, N samples per position, S noise size; sample n of position
/// r is row r N + n. Everything that depends only on the hidden state is computed once per position, not N times.
/// \shows{tests/model/input_test.cpp,a_step_an_evaluation_and_a_text}

#include <algorithm>
#include <span>
#include <string_view>

#include "calm/loss/energy_score.hpp"
#include "calm/model/config.hpp"
#include "calm/model/detail/heads/network_base.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/detail/tensor_shapes.hpp"
#include "calm/model/flops.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/repeated_layer.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/tensor/ops/fill_rows.hpp"
#include "calm/tensor/ops/repeat.hpp"
#include "calm/tensor/ops/total.hpp"

namespace calm {

/// x + W_down(silu(gate) * up), (gate, up) = W_4 silu(W_2 silu(W_0 [LN(x); y])).
template <index_t D, class Space = space<>> struct energy_block {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    using rows_view = matrix_view<T, D, Backend>;         ///< (R N, D) or (R, D)
    using const_rows = matrix_view<T const, D, Backend>;  ///< likewise, read-only

    using norm_type = layer_norm_layer<D, Space, result_as::activations>;            ///< on rows of width D
    using silu_type = silu_layer<D, Space, result_as::activations>;                  ///< on rows of width D
    using inner_type = linear<D, D, with_bias::yes, Space, result_as::activations>;  ///< on rows of width D
    using inner_rows = activations<T, D, Backend>;                                   ///< (R N, D)
    using condition_view = activations<T const, D, Backend>;                         ///< (R, D)

    norm_type in_ln;                                ///< LN(x)
    linear<2 * D, D, with_bias::yes, Space> w0;     ///< W_0
    silu_type activation;                           ///< after W_0 and after W_2
    inner_type w2;                                  ///< W_2
    linear<D, 2 * D, with_bias::yes, Space> w4;     ///< W_4
    linear<D, D, with_bias::yes, Space> down_proj;  ///< W_down

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        typename norm_type::saved_activations norm;                            ///< y: (R N, D)
        condition_view condition;                                              ///< (R, D), per position
        inner_rows a1;                                                         ///< (R N, D), before the first SiLU
        typename silu_type::saved_activations s1;                              ///< y: (R N, D)
        typename inner_type::saved_activations l2;                             ///< y: (R N, D)
        typename silu_type::saved_activations s2;                              ///< y: (R N, D)
        inner_rows gate;                                                       ///< (R N, D)
        inner_rows up;                                                         ///< (R N, D)
        typename linear<D, D, with_bias::yes, Space>::saved_activations down;  ///< y: (R N, D), residual included
        rows_view y;                                                           ///< (R N, D), the result
    };

    /// y (R N, D) from samples x (R N, D) and the condition (R, D), which the N samples of each position share.
    saved_activations forward(context<Backend>& ctx, const_rows const& x, condition_view const& condition) const {
        auto const take = [&] { return take_activations<T, D>(ctx, ctx.saved, x.extent(0)); };
        saved_activations s{.norm = in_ln.forward(ctx, x),
                            .condition = condition,
                            .a1 = take(),
                            .s1 = {},
                            .l2 = {},
                            .s2 = {},
                            .gate = {},
                            .up = {},
                            .down = {},
                            .y = {}};
        {
            arena_scope const scope(ctx.workspace);
            auto const shared = ctx.workspace.template take<T>(condition.extents());  // (R, D)
            matmul(ctx, shared, condition, transposed(columns<D, D>(w0.weight.value)), {.bias = w0.bias.read()});
            with_numbers([&](auto const& a1) { repeat_interleave(ctx, a1, shared); }, s.a1);
        }
        s.s1 = {s.a1, take()};
        s.l2 = {s.s1.y, take()};
        s.s2 = {s.l2.y, take()};
        s.gate = take();
        s.up = take();
        auto const act = take();
        matmul(ctx, with_silu(s.a1, s.s1.y), s.norm.y, transposed(columns<0, D>(w0.weight.value)),
               {.mode = into::accumulate});
        matmul(ctx, with_silu(s.l2.y, s.s2.y), s.s1.y, transposed(w2.weight.value), {.bias = w2.bias.read()});
        matmul(ctx, with_gate(s.gate, s.up, act), s.s2.y,
               side_by_side(transposed(w4.template part<0, D>()), transposed(w4.template part<D, D>())),
               {.bias = w4.bias.read()});
        s.down = down_proj.forward(ctx, act, {x});
        s.y = s.down.y;
        return s;
    }

    /// Overwrites dx (R N, D), given dy (R N, D); dcondition (R, D) accumulates. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, const_rows const& dy, rows_view const& dx,
                  rows_view const& dcondition) {
        arena_scope const scope(ctx.workspace);
        inner_rows const a = take_activations<T, D>(ctx, ctx.workspace, dy.extent(0));
        inner_rows const b = take_activations<T, D>(ctx, ctx.workspace, dy.extent(0));
        down_proj.backward(ctx, s.down, dy, a);
        gated_back(ctx, s.gate, s.up, a);
        w4.template backward_part<0, D>(ctx, s.s2.y, s.gate, b, into::overwrite);
        w4.template backward_part<D, D>(ctx, s.s2.y, s.up, b, into::accumulate);
        activation.backward(ctx, s.s2, b, b);
        w2.backward(ctx, s.l2, b, a);
        activation.backward(ctx, s.s1, a, a);                                       // gradient of a1
        auto const dshared = ctx.workspace.template take<T>(dcondition.extents());  // (R, D)
        with_numbers([&](auto const& da1) { segment_sum(ctx, dshared, da1); }, a);
        matmul(ctx, columns<D, D>(w0.weight.gradient()), transposed(dshared), s.condition, {.mode = into::accumulate});
        auto const factor = precast_factor(ctx, a);
        matmul(ctx, columns<0, D>(w0.weight.gradient()), transposed(factor), s.norm.y, {.mode = into::accumulate});
        add_sum_axis0(ctx, w0.bias.gradient(), dshared);
        matmul(ctx, dcondition, dshared, columns<D, D>(w0.weight.value), {.mode = into::accumulate});
        matmul(ctx, b, factor, columns<0, D>(w0.weight.value));
        in_ln.backward(ctx, s.norm, b, dx, {dy});
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("in_ln", in_ln, visitor);
        visit_as("linears.0", w0, visitor);
        visit_as("linears.2", w2, visitor);
        visit_as("linears.4", w4, visitor);
        visit_as("down_proj", down_proj, visitor);
    }
};

/// Run-time settings of the loss.
struct energy_objective {
    index_t samples = 8;    ///< N, at least 2 and at most limits::samples
    index_t targets = 100;  ///< M, at least 1 and at most limits::targets
    double beta = 1;        ///< in (0, 2)

    /// Visits every field.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(number_field{.key = "num_samples",
                             .what = "model samples per position, in the loss",
                             .least = 2,
                             .most = limits::samples,
                             .option = "samples"},
                self.samples);
        visitor(number_field{.key = "num_target_samples",
                             .what = "target samples per position, in the loss",
                             .least = 1,
                             .most = limits::targets,
                             .published = false,
                             .option = "targets"},
                self.targets);
        visitor(number_field{.key = "beta",
                             .what = "exponent of the energy score",
                             .least = 0,
                             .most = 2,
                             .without_ends = true,
                             .option = "beta"},
                self.beta);
    }
};

/// Throws errc::usage if the objective exceeds the limits.
inline void require_allowed(energy_objective const& o) {
    require(o.samples <= limits::samples && o.targets <= limits::targets, errc::usage,
            "calm::energy_objective: expected at most ", limits::samples, " samples and ", limits::targets,
            " targets per position, found ", o.samples, " and ", o.targets);
}

/// total += the losses of R positions: the negative energy scores of samples y (R N, L) against their posteriors. If
/// gradients are wanted, calls backward(dy) with the gradient of out.scale times the sum.
template <auto C, class Space, class Y, class Targets, class Back>
void add_energy_loss(context<typename Space::backend>& ctx, total_view<typename Space::backend> const& total,
                     Y const& y, head_inputs<C, Space> const& in, head_gradients<C, Space> const& out,
                     energy_objective const& o, Targets const& targets, Back const& backward) {
    using T = typename Space::scalar;
    constexpr index_t L = C.autoencoder.latent_size;
    arena_scope const scope(ctx.workspace);
    index_t const positions = in.mean.extent(0);
    extents<dyn, dyn, dyn> const shape(positions, o.samples, L);
    auto const score = ctx.workspace.template take<T>(extents<dyn>(positions));
    view<T, extents<dyn, dyn, dyn>, typename Space::backend> dy(nullptr, shape);
    if (out.wanted()) dy = ctx.workspace.template take<T>(shape);
    energy_score(ctx, score, dy, reshape(y, shape), in.mean, in.log_std, targets, o.beta, o.targets, out.scale);
    if (out.wanted()) backward(reshape(dy, extents<dyn, L>(positions * o.samples)));
    add_sum(ctx, total, score, -1);
}

template <model_configuration auto C, class Space> struct energy_head;

/// The energy head: its sizes and names.
struct energy {
    index_t num_mlp_layers = 4;  ///< blocks
    index_t noise_size = 64;     ///< S, noise elements per sample

    static constexpr std::string_view name = "energy";                     ///< on command lines and in files
    static constexpr std::string_view architecture = "EnergyTransformer";  ///< in files
    static constexpr std::string_view type = "calm::energy";               ///< C++ type name
    using objective = energy_objective;                                    ///< N, M and beta
    /// The head's network.
    template <model_configuration auto C, class Space> using network = energy_head<C, Space>;

    /// FLOPs of the products.
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        double const noise = flops::product(1, noise_size, at.D);  // the noise gets no gradient
        double const sample =
            noise + flops::product(5 * num_mlp_layers + 1, at.D, at.D) + flops::product(1, at.D, at.L);
        return {
            .shared = flops::product(1 + num_mlp_layers, at.D, at.D), .trained = sample - noise / 3, .drawn = sample};
    }
    /// Tensors of the network.
    void tensors(head_dimensions const& at, tensor_shapes& to) const {
        to.linear("noise_embd", noise_size, at.D);
        to.linear("hidden_embd", at.D, at.D);
        to.layer_norm("norm_hidden", at.D);
        to.layer_norm("norm_noise", at.D);
        to.repeated("mlp_blocks", num_mlp_layers, [&] {
            to.layer_norm("in_ln", at.D);
            to.linear("linears.0", 2 * at.D, at.D);
            to.linear("linears.2", at.D, at.D);
            to.linear("linears.4", at.D, 2 * at.D);
            to.linear("down_proj", at.D, at.D);
        });
        to.layer_norm("final_layer.in_ln", at.D);
        to.linear("final_layer.linears.0", at.D, at.D);
        to.linear("final_layer.linears.2", at.D, at.L);
    }
    /// Visits every size.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(detail::size_field("num_mlp_layers", "blocks", limits::layers), self.num_mlp_layers);
        visitor(number_field{.key = "noise_size", .what = "noise", .least = 1, .most = limits::width}, self.noise_size);
    }
    friend constexpr bool operator==(energy const&, energy const&) = default;
};

/// Draws N samples of the next latent for each of R hidden states in one pass, and scores them against the posterior.
/// The last linear layer is initialised to zero, so all samples are equal at first.
template <model_configuration auto C, class Space = space<>>
struct energy_head : detail::head_network_base<C, Space, energy_head<C, Space>> {
    using base = detail::head_network_base<C, Space, energy_head>;  ///< types of the interface, loss in chunks
    using base::D, base::L, base::loss_and_gradient;
    using typename base::T, typename base::Backend, typename base::inputs_type, typename base::gradients_type,
        typename base::objective, typename base::hidden_view, typename base::latents, typename base::const_latents;
    static constexpr index_t S = C.head.noise_size;                                        ///< noise values per sample
    static constexpr std::size_t depth = static_cast<std::size_t>(C.head.num_mlp_layers);  ///< blocks
    /// Elements of memory per sample during training, in ctx.saved and ctx.workspace.
    static constexpr index_t numbers_per_sample = (9 * C.head.num_mlp_layers + 12) * D + S + 4 * L;
    using noise_view = matrix_view<T const, S, Backend>;  ///< (R N, S)
    /// Noise of the loss; Targets are drawn_targets or given_targets.
    template <class Targets> struct noise_type {
        noise_view samples;  ///< (R N, S), uniform in [-1/2, 1/2)
        Targets targets;     ///< of R positions
    };
    using given_noise = noise_type<given_targets<T, Backend>>;                       ///< from the caller
    using norm_type = layer_norm_layer<D, Space>;                                    ///< on rows of width D
    using norm_to_activations = layer_norm_layer<D, Space, result_as::activations>;  ///< likewise

    /// Linear(silu(Linear(LN(x)))), (R N, D) to (R N, L).
    using final_layer_type =
        sequential<named<"in_ln", norm_to_activations>,
                   named<"linears", sequential<linear<D, D, with_bias::yes, Space, result_as::activations>,
                                               silu_layer<D, Space, result_as::activations>,
                                               linear<D, L, with_bias::yes, Space>>>>;

    linear<S, D, with_bias::yes, Space> noise_embd;            ///< (R N, S) to (R N, D)
    linear<D, D, with_bias::yes, Space> hidden_embd;           ///< (R, D) to (R, D)
    norm_to_activations norm_hidden;                           ///< after hidden_embd
    norm_type norm_noise;                                      ///< after noise_embd
    repeated_layer<energy_block<D, Space>, depth> mlp_blocks;  ///< in order
    final_layer_type final_layer;                              ///< initialised to give zero samples

    /// For any number of token ids.
    explicit energy_head(index_t) : energy_head() {}
    /// Without memory until `allocate`.
    energy_head() { final_layer.template child<"linears">().template layer<2>().weight.starts = role::output; }

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        typename decltype(noise_embd)::saved_activations noise;                            ///< y: (R N, D)
        typename norm_type::saved_activations noise_norm;                                  ///< y: (R N, D)
        typename decltype(hidden_embd)::saved_activations hidden;                          ///< y: (R, D)
        typename norm_to_activations::saved_activations hidden_norm;                       ///< y: (R, D)
        typename repeated_layer<energy_block<D, Space>, depth>::saved_activations blocks;  ///< y: (R N, D)
        typename final_layer_type::saved_activations final_layer;                          ///< y: (R N, L)
        latents y;                                                                         ///< (R N, L)
    };

    /// Draws samples for every position: hidden (R, D), noise (R N, S) uniform in [-1/2, 1/2).
    saved_activations forward(context<Backend>& ctx, hidden_view const& hidden, noise_view const& noise) const {
        auto const n = noise_embd.forward(ctx, noise);
        auto const nn = norm_noise.forward(ctx, n.y);
        auto const h = hidden_embd.forward(ctx, hidden);
        auto const hn = norm_hidden.forward(ctx, h.y);
        auto const blocks = mlp_blocks.forward(ctx, nn.y, hn.y);
        auto const last = final_layer.forward(ctx, blocks.y);
        return {n, nn, h, hn, blocks, last, last.y};
    }

    /// Backward for dy (R N, L): overwrites dhidden (R, D). Parameter gradients accumulate. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, const_latents const& dy,
                  matrix_view<T, D, Backend> const& dhidden) {
        arena_scope const scope(ctx.workspace);
        auto const da = ctx.workspace.template take<T>(extents<dyn, D>(dy.extent(0)));
        final_layer.backward(ctx, s.final_layer, dy, da);
        auto const db = ctx.workspace.template take<T>(extents<dyn, D>(dy.extent(0)));
        auto const dshared = ctx.workspace.template take<T>(dhidden.extents());  // (R, D)
        fill(ctx, dshared, T{});
        mlp_blocks.backward(ctx, s.blocks, da, db, dshared);
        norm_noise.backward(ctx, s.noise_norm, db, da);
        noise_embd.backward(ctx, s.noise, da, no_gradient{});
        auto const dh = ctx.workspace.template take<T>(dhidden.extents());
        norm_hidden.backward(ctx, s.hidden_norm, dshared, dh);
        hidden_embd.backward(ctx, s.hidden, dh, dhidden);
    }

    /// z (R N, L): draws N samples for every hidden state (R, D). The noise comes from `rngs` (R), one per row, times
    /// `scale`; sample i of a key uses its elements i S .. i S + S - 1. Restores ctx.saved on return.
    void sample(context<Backend>& ctx, latents const& z, inputs_type const& in, std::span<row_rng const> rngs,
                double scale = 1) const {
        arena_scope const scope(ctx.saved);
        auto const noise = ctx.saved.template take<T>(extents<dyn, S>(z.extent(0)));
        arena_scope const of_places(ctx.workspace);
        fill_uniform(ctx, noise, to_device(ctx, rngs), static_cast<T>(-0.5));
        if (scale != 1) evaluate(ctx, noise, noise * scale);
        copy(ctx, z, forward(ctx, in.hidden, noise).y);
    }

    /// The noise of R positions, of which position r has index first + r in the step. Result in ctx.saved.
    noise_type<drawn_targets> draw_noise(context<Backend>& ctx, inputs_type const& in, objective const& o,
                                         rng_counter first) const {
        auto const noise = ctx.saved.template take<T>(extents<dyn, S>(in.hidden.extent(0) * o.samples));
        fill_uniform(ctx, noise, ctx.random(stream::head_noise), first * o.samples * S, static_cast<T>(-0.5));
        return {noise, {ctx.random(stream::target), first}};
    }

    /// With given noise.
    template <class Targets>
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                           gradients_type const& out, objective const& o, noise_type<Targets> const& noise) {
        arena_scope const scope(ctx.saved);
        auto const s = forward(ctx, in.hidden, noise.samples);
        add_energy_loss(ctx, total, s.y, in, out, o, noise.targets,
                        [&](const_latents const& dy) { backward(ctx, s, dy, out.dhidden); });
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("noise_embd", noise_embd, visitor);
        visit_as("hidden_embd", hidden_embd, visitor);
        visit_as("norm_hidden", norm_hidden, visitor);
        visit_as("norm_noise", norm_noise, visitor);
        visit_as("mlp_blocks", mlp_blocks, visitor);
        visit_as("final_layer", final_layer, visitor);
    }
};

}  // namespace calm
