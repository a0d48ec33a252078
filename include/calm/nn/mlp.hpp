#pragma once
/// \file
/// SwiGLU(x) = W_down(silu(W_gate x) * W_up x), no biases. Shazeer 2020.
/// \shows{tests/nn/mlp_test.cpp,it_learns_a_product_of_its_inputs}

#include "calm/nn/linear.hpp"

namespace calm {

/// SwiGLU on rows of width D with Inner hidden elements.
template <index_t D, index_t Inner, class Space = space<>> struct swiglu {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;

    using input = activations<T const, D, Backend>;                                     ///< (R, D)
    using inner_type = linear<D, Inner, with_bias::no, Space, result_as::activations>;  ///< to (R, Inner)
    using inner_rows = activations<T, Inner, Backend>;                                  ///< (R, Inner)

    inner_type gate_proj;                              ///< W_gate
    inner_type up_proj;                                ///< W_up
    linear<Inner, D, with_bias::no, Space> down_proj;  ///< W_down

    /// FLOPs of the three products per row.
    static constexpr double flops(double = 0) { return 3 * decltype(gate_proj)::flops(); }

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        typename inner_type::saved_activations gate;           ///< y: (R, Inner)
        typename inner_type::saved_activations up;             ///< y: (R, Inner)
        typename decltype(down_proj)::saved_activations down;  ///< x: (R, Inner), y: (R, D)
        matrix_view<T, D, Backend> y;                          ///< (R, D)
    };

    static constexpr bool adds_residual = true;  ///< forward and extend take an addend

    /// y (R, D) of x (R, D), plus the addend.
    saved_activations forward(context<Backend>& ctx, input const& x, addend<T, D, Backend> const& residual = {}) const {
        typename inner_type::saved_activations const gate{x, inner_type::room(ctx, x.extent(0))};
        typename inner_type::saved_activations const up{x, inner_type::room(ctx, x.extent(0))};
        auto const act = take_activations<T, Inner>(ctx, ctx.saved, x.extent(0));  // (R, Inner)
        apply_gated(ctx, act, x, gate.y, up.y);
        auto const down = down_proj.forward(ctx, act, residual);
        return {gate, up, down, down.y};
    }

    /// Forward for inference, on rows that the products normalise as they read them. Saves nothing for backward.
    matrix_view<T, D, Backend> extend(context<Backend>& ctx, rms_norm_prologue<T, D, Backend> const& x,
                                      addend<T, D, Backend> const& residual = {}) const {
        auto const act = take_activations<T, Inner>(ctx, ctx.saved, x.extent(0));
        {
            arena_scope const scope(ctx.workspace);
            auto const take = [&] { return take_activations<T, Inner>(ctx, ctx.workspace, x.extent(0)); };
            apply_gated(ctx, act, x, take(), take());
        }
        return down_proj.forward(ctx, act, residual).y;
    }

    /// Consumes s: the gradients of gate and up overwrite it.
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy,
                  activations<T, D, Backend> const& dx) {
        arena_scope const scope(ctx.workspace);
        auto const dact = take_activations<T, Inner>(ctx, ctx.workspace, dy.extent(0));  // (R, Inner)
        down_proj.backward(ctx, s.down, dy, dact);
        gated_back(ctx, s.gate.y, s.up.y, dact);
        gate_proj.backward(ctx, s.gate, s.gate.y, dx);
        up_proj.backward(ctx, s.up, s.up.y, dx, into::accumulate);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("gate_proj", gate_proj, visitor);
        visit_as("up_proj", up_proj, visitor);
        visit_as("down_proj", down_proj, visitor);
    }

private:
    // act (R, Inner) = silu(gate) * up for x (R, D), plain or rms_norm_prologue.
    template <class X>
    void apply_gated(context<Backend>& ctx, inner_rows const& act, X const& x, inner_rows const& gate,
                     inner_rows const& up) const {
        matmul(ctx, with_gate(gate, up, act), x,
               side_by_side(transposed(gate_proj.weight.value), transposed(up_proj.weight.value)));
    }
};

}  // namespace calm
