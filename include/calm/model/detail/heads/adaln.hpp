#pragma once
// The network of the flow and diffusion heads (AdaLN network in docs/mathematics/heads.md). It maps latents at steps of
// a path of 1000, conditioned on step and hidden state through the shift, scale and gate of every block (Peebles and
// Xie 2023). Sizes: R positions, N samples per position, C condition rows; each serves R N / C consecutive samples.

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "calm/model/detail/tensor_shapes.hpp"
#include "calm/model/flops.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/repeated_layer.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/ops/repeat.hpp"

namespace calm {

inline constexpr index_t path_steps = 1000;  // steps per path, as the network counts them

// The step at a time in [0, 1), rounded down. It uses fp32 like the published code, because rounding affects the step.
CALM_HD constexpr std::int32_t path_step(float time) {
    return static_cast<std::int32_t>(time * static_cast<float>(path_steps));
}

namespace detail {

// The steps that a sample takes.
inline constexpr number_field steps_field{
    .key = "steps", .what = "steps per sample", .least = 1, .most = path_steps, .option = "steps"};

// steps (n) of times (n); index i handles one element.
template <class T> struct path_steps_of {
    std::int32_t* steps;
    T const* times;
    CALM_HD void operator()(index_t i) const {
        if constexpr (requires { times[i].real(); })
            steps[i] = path_step(static_cast<float>(times[i].real()));
        else
            steps[i] = path_step(static_cast<float>(times[i]));
    }
};

inline constexpr index_t frequencies = 128;  // in the sinusoidal embedding of each step

// Frequency k, 10000^(-k / 128), in fp32 as published. One ulp changes the angle by 6e-5 at step 999, so the rounding
// of the exponential matters. It rounds to nearest, except that k = 13 (0.47 ulp above the nearest value) is rounded
// up.
CALM_HD inline float frequency(index_t k) {
    float const power = -9.210340371976184F * static_cast<float>(k) / static_cast<float>(frequencies);
    float const nearest = static_cast<float>(std::exp(static_cast<double>(power)));
    return k == 13 ? std::nextafter(nearest, 1.0F) : nearest;
}

// y (R, 2 * 128): cosines, then sines, of steps[r] times each frequency.
template <class T> struct sinusoids {
    T* y;
    std::int32_t const* steps;
    CALM_HD void operator()(index_t i) const {
        index_t const k = i % frequencies;
        float const angle = static_cast<float>(steps[i / frequencies]) * frequency(k);
        T* const row = y + i / frequencies * 2 * frequencies;
        row[k] = static_cast<T>(std::cos(static_cast<double>(angle)));
        row[frequencies + k] = static_cast<T>(std::sin(static_cast<double>(angle)));
    }
};

}  // namespace detail

// LN(x) * (1 + scale) + shift. Shift and scale are the first two of Parts linear maps of the condition, which are
// initialised to zero. The caller uses the other maps.
template <class Norm, index_t Parts, class Space = space<>> struct adaptive_norm {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t D = Norm::outputs;
    using rows_view = matrix_view<T, D, Backend>;         // (R N, D)
    using const_rows = matrix_view<T const, D, Backend>;  // (R N, D) or (C, D), read-only

    Norm norm;                                               // LN
    linear<D, Parts * D, with_bias::yes, Space> modulation;  // maps the condition

    adaptive_norm() { modulation.weight.starts = role::output; }

    // Saved activations of forward.
    struct saved_activations {
        typename Norm::saved_activations norm;  // y: (R N, D)
        rows_view scale;                        // (R N, D)
        rows_view y;                            // (R N, D)
    };

    // y (R N, D) from x (R N, D) and the condition a (C, D).
    saved_activations forward(context<Backend>& ctx, const_rows const& x, const_rows const& a) const {
        saved_activations const s{norm.forward(ctx, x), part<1>(ctx, a, x.extent(0)), part<0>(ctx, a, x.extent(0))};
        evaluate(ctx, s.y, s.norm.y * (1.0 + s.scale) + s.y);
        return s;
    }

    // Requires one condition row per sample: C = R N. Overwrites dx (R N, D), which may alias dy; da (R N, D)
    // accumulates.
    void backward(context<Backend>& ctx, saved_activations const& s, const_rows const& a, const_rows const& dy,
                  rows_view const& dx, rows_view const& da) {
        part_backward<0>(ctx, a, dy, da);
        differentiate(ctx, wrt(s.norm.y, s.norm.y) * (1.0 + wrt(s.scale, s.scale)), dy);
        part_backward<1>(ctx, a, s.scale, da);
        norm.backward(ctx, s.norm, s.norm.y, dx);
    }

    // Linear map number Part of the condition a (C, D), with each row repeated count / C times: (count, D).
    template <index_t Part> rows_view part(context<Backend>& ctx, const_rows const& a, index_t count) const {
        auto const y = ctx.saved.template take<T>(extents<dyn, D>(count));
        if (count == a.extent(0)) {
            modulation.template apply_part<Part * D, D>(ctx, y, a);
            return y;
        }
        arena_scope const scope(ctx.workspace);
        auto const once = ctx.workspace.template take<T>(a.extents());
        modulation.template apply_part<Part * D, D>(ctx, once, a);
        repeat_interleave(ctx, y, once);
        return y;
    }
    // Backward of a part for dy (C, D): da (C, D) accumulates.
    template <index_t Part>
    void part_backward(context<Backend>& ctx, const_rows const& a, const_rows const& dy, rows_view const& da) {
        modulation.template backward_part<Part * D, D>(ctx, a, dy, da, into::accumulate);
    }

    // The linear map has index 1 in published names: index 0 is a SiLU, which is computed once for all maps.
    template <class Visitor> void visit(char const* name, Visitor& visitor) {
        visit_as(name, norm, visitor);
        visit_as("adaLN_modulation.1", modulation, visitor);
    }
};

// x + gate * W_2 silu(W_0 (LN(x) * (1 + scale) + shift)).
template <index_t D, class Space = space<>> struct adaln_block {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    using norm_type = adaptive_norm<layer_norm_layer<D, Space>, 3, Space>;  // shift, scale, gate
    using mlp_type = sequential<linear<D, D, with_bias::yes, Space, result_as::activations>,
                                silu_layer<D, Space, result_as::activations>,
                                linear<D, D, with_bias::yes, Space>>;  // W_0, SiLU, W_2
    using rows_view = typename norm_type::rows_view;                   // (R N, D)
    using const_rows = typename norm_type::const_rows;                 // (R N, D) or (C, D)

    norm_type norm;  // also holds the map of the gate
    mlp_type mlp;    // applied to the modulated rows

    adaln_block() {
        mlp.template layer<0>().weight.starts = role::xavier;
        mlp.template layer<2>().weight.starts = role::xavier;
    }

    // Saved activations of forward.
    struct saved_activations {
        typename norm_type::saved_activations norm;  // y: (R N, D)
        typename mlp_type::saved_activations mlp;    // y: (R N, D)
        rows_view gate;                              // (R N, D)
        rows_view y;                                 // (R N, D)
    };

    // y (R N, D) from x (R N, D) and the condition a (C, D).
    saved_activations forward(context<Backend>& ctx, const_rows const& x, const_rows const& a) const {
        auto const n = norm.forward(ctx, x, a);
        saved_activations const s{n, mlp.forward(ctx, n.y), norm.template part<2>(ctx, a, x.extent(0)),
                                  ctx.saved.template take<T>(x.extents())};
        evaluate(ctx, s.y, x + s.gate * s.mlp.y);
        return s;
    }

    // Requires one condition row per sample: C = R N. Overwrites dx (R N, D); da (R N, D) accumulates.
    void backward(context<Backend>& ctx, saved_activations const& s, const_rows const& dy, rows_view const& dx,
                  const_rows const& a, rows_view const& da) {
        differentiate(ctx, wrt(s.gate, s.gate) * wrt(s.mlp.y, s.mlp.y), dy);
        norm.template part_backward<2>(ctx, a, s.gate, da);
        mlp.backward(ctx, s.mlp, s.mlp.y, dx);
        norm.backward(ctx, s.norm, a, dx, dx, da);
        evaluate(ctx, dx, dx + dy);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        norm.visit("in_ln", visitor);
        visit_as("mlp", mlp, visitor);
    }
};

// Maps latents of width L at steps of a path, given hidden states of width D, to Parts outputs of width L. Initially
// zero.
template <index_t L, index_t D, index_t Parts, std::size_t Depth, class Space = space<>> struct adaln_network {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t sinusoid = 2 * detail::frequencies;  // width of the sinusoidal embedding
    // Elements of memory per sample during training, in ctx.saved and ctx.workspace.
    static constexpr index_t numbers_per_sample =
        (10 * static_cast<index_t>(Depth) + 14) * D + sinusoid + (4 + 4 * Parts) * L;
    using latents = matrix_view<T const, L, Backend>;                                         // (R N, L)
    using hidden_view = matrix_view<T const, D, Backend>;                                     // (R, D)
    using step_view = vector_view<std::int32_t const, dyn, Backend>;                          // (R N)
    using outputs = std::array<matrix_view<T, L, Backend>, static_cast<std::size_t>(Parts)>;  // (R N, L) each
    using block_type = adaln_block<D, Space>;                                                 // one block

    // The step embedding, on top of the sinusoids.
    using time_embed_type = sequential<
        named<"mlp", sequential<linear<sinusoid, D, with_bias::yes, Space, result_as::activations>,
                                silu_layer<D, Space, result_as::activations>, linear<D, D, with_bias::yes, Space>>>>;
    // A modulated LayerNorm followed by a linear map.
    struct final_layer_type {
        adaptive_norm<layer_norm_no_affine<D, Space>, 2, Space> norm;  // shift, scale
        calm::linear<D, Parts * L, with_bias::yes, Space> linear;      // all parts concatenated
        template <class Visitor> void visit(Visitor& visitor) {
            norm.visit("norm_final", visitor);
            visit_as("linear", linear, visitor);
        }
    };

    time_embed_type time_embed;                      // embeds the step
    linear<D, D, with_bias::yes, Space> cond_embed;  // (R, D) to (R, D), embeds the hidden state
    linear<L, D, with_bias::yes, Space> input_proj;  // (R N, L) to (R N, D)
    repeated_layer<block_type, Depth> res_blocks;    // in order
    final_layer_type final_layer;                    // to (R N, Parts L)

    // Without memory until `allocate`.
    adaln_network() {
        cond_embed.weight.starts = input_proj.weight.starts = role::xavier;
        final_layer.linear.weight.starts = role::output;
    }

    // Saved activations of apply.
    struct applied {
        typename decltype(input_proj)::saved_activations input;                // y: (R N, D)
        typename repeated_layer<block_type, Depth>::saved_activations blocks;  // y: (R N, D)
        typename decltype(final_layer.norm)::saved_activations norm;           // y: (R N, D)
        outputs y;                                                             // (R N, L) each
    };
    // Saved activations of forward.
    struct saved_activations {
        typename time_embed_type::saved_activations time;            // y: (R N, D)
        typename decltype(cond_embed)::saved_activations hidden;     // y: (R, D)
        typename silu_layer<D, Space>::saved_activations condition;  // y: (R N, D)
        applied network;                                             // saved by apply
        outputs y;                                                   // (R N, L) each
    };

    // Maps x (R N, L), each row at its step (R N), given hidden states (R, D).
    saved_activations forward(context<Backend>& ctx, latents const& x, step_view const& steps,
                              hidden_view const& hidden) const {
        auto const time = embed(ctx, steps);
        auto const h = cond_embed.forward(ctx, hidden);
        auto const c = ctx.saved.template take<T>(time.y.extents());  // (R N, D)
        repeat_interleave(ctx, c, h.y);
        evaluate(ctx, c, time.y + c);
        auto const condition = silu_layer<D, Space>().forward(ctx, c);
        auto const network = apply(ctx, x, condition.y);
        return {time, h, condition, network, network.y};
    }

    // Backward for dy, (R N, L) each: overwrites dhidden (R, D). Parameter gradients accumulate. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, outputs const& dy,
                  matrix_view<T, D, Backend> const& dhidden) {
        arena_scope const scope(ctx.workspace);
        auto const& shape = s.condition.y.extents();  // (R N, D)
        auto const dblocks = ctx.workspace.template take<T>(shape);
        auto const dx = ctx.workspace.template take<T>(shape);
        auto const da = ctx.workspace.template take<T>(shape);
        fill(ctx, da, T{});
        part_backward<0>(ctx, s.network.norm.y, dy, dblocks);
        final_layer.norm.backward(ctx, s.network.norm, s.condition.y, dblocks, dblocks, da);
        res_blocks.backward(ctx, s.network.blocks, dblocks, dx, s.condition.y, da);
        input_proj.backward(ctx, s.network.input, dx, no_gradient{});
        silu_layer<D, Space>().backward(ctx, s.condition, da, da);
        time_embed.backward(ctx, s.time, da, no_gradient{});
        auto const dh = ctx.workspace.template take<T>(dhidden.extents());
        segment_sum(ctx, dh, da);
        cond_embed.backward(ctx, s.hidden, dh, dhidden);
    }

    // The part of the condition that depends only on hidden states (R, D), for `at_step`. Result (R, D) in ctx.saved.
    hidden_view prepare(context<Backend>& ctx, hidden_view const& hidden) const {
        return cond_embed.forward(ctx, hidden).y;
    }
    // Maps x (R N, L), all at one step, given the result of `prepare` (R, D). The N samples of each hidden state share
    // one condition, computed once. Result in ctx.saved.
    outputs at_step(context<Backend>& ctx, latents const& x, std::int32_t step, hidden_view const& prepared) const {
        auto const steps = ctx.saved.template take<std::int32_t>(extents<dyn>(1));
        fill(ctx, steps, step);
        auto const a = ctx.saved.template take<T>(prepared.extents());
        repeat_interleave(ctx, a, embed(ctx, steps).y);
        evaluate(ctx, a, silu(a + prepared));
        return apply(ctx, x, a).y;
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("time_embed", time_embed, visitor);
        visit_as("cond_embed", cond_embed, visitor);
        visit_as("input_proj", input_proj, visitor);
        visit_as("res_blocks", res_blocks, visitor);
        visit_as("final_layer", final_layer, visitor);
    }

private:
    // The embeddings (R, D) of steps (R).
    auto embed(context<Backend>& ctx, step_view const& steps) const {
        auto const shown = ctx.saved.template take<T>(extents<dyn, sinusoid>(steps.size()));
        for_each(ctx, shown.size() / 2, detail::sinusoids<T>{shown.data(), steps.data()});
        return time_embed.forward(ctx, shown);
    }

    // Maps x (R N, L) under the condition a (C, D).
    applied apply(context<Backend>& ctx, latents const& x, hidden_view const& a) const {
        applied s{input_proj.forward(ctx, x), {}, {}, {}};
        s.blocks = res_blocks.forward(ctx, s.input.y, a);
        s.norm = final_layer.norm.forward(ctx, s.blocks.y, a);
        part_forward<0>(ctx, s.norm.y, s.y);
        return s;
    }

    // Parts from Part on of the final linear map, forward and backward. The first part overwrites dx.
    template <index_t Part> void part_forward(context<Backend>& ctx, hidden_view const& x, outputs& y) const {
        auto& out = y[static_cast<std::size_t>(Part)];
        out = ctx.saved.template take<T>(extents<dyn, L>(x.extent(0)));
        final_layer.linear.template apply_part<Part * L, L>(ctx, out, x);
        if constexpr (Part + 1 < Parts) part_forward<Part + 1>(ctx, x, y);
    }
    template <index_t Part>
    void part_backward(context<Backend>& ctx, hidden_view const& x, outputs const& dy,
                       matrix_view<T, D, Backend> const& dx) {
        final_layer.linear.template backward_part<Part * L, L>(ctx, x, dy[static_cast<std::size_t>(Part)], dx,
                                                               Part == 0 ? into::overwrite : into::accumulate);
        if constexpr (Part + 1 < Parts) part_backward<Part + 1>(ctx, x, dy, dx);
    }
};

namespace detail {
// Adds the tensors of an adaln_network.
inline void add_adaln_tensors(tensor_shapes& to, head_dimensions const& at, index_t parts, index_t depth) {
    to.linear("time_embed.mlp.0", 2 * frequencies, at.D);
    to.linear("time_embed.mlp.2", at.D, at.D);
    to.linear("cond_embed", at.D, at.D);
    to.linear("input_proj", at.L, at.D);
    to.repeated("res_blocks", depth, [&] {
        to.layer_norm("in_ln", at.D);
        to.linear("adaLN_modulation.1", at.D, 3 * at.D);
        to.linear("mlp.0", at.D, at.D);
        to.linear("mlp.2", at.D, at.D);
    });
    to.linear("final_layer.adaLN_modulation.1", at.D, 2 * at.D);
    to.linear("final_layer.linear", at.D, parts * at.L);
}
}  // namespace detail

namespace flops {
// FLOPs of a head with an adaln_network that runs `evaluations` times per sample. Times and states get no gradients.
// `drawn` is for a single sample; further samples share its modulation.
constexpr head_flops adaln(head_dimensions const& at, index_t parts, index_t depth, index_t evaluations) {
    double const time = product(1, 2 * detail::frequencies, at.D), state = product(1, at.L, at.D);
    double const sample =
        time + product(1, at.D, at.D) + state + product(5 * depth + 2, at.D, at.D) + product(1, at.D, parts * at.L);
    return {.shared = product(1, at.D, at.D),
            .trained = sample - (time + state) / 3,
            .drawn = static_cast<double>(evaluations) * sample};
}
}  // namespace flops

}  // namespace calm
