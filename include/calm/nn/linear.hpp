#pragma once
/// \file
/// y = x W^T + b, with W stored (out, in) as in the published checkpoints.
/// \shows{examples/05_layer.cpp,gated}

#include "calm/nn/layer.hpp"
#include "calm/tensor/ops/matmul.hpp"

namespace calm {

/// Whether a linear layer adds a bias.
enum class with_bias : bool { no, yes };

/// A linear map from In to Out elements per row. W is initialised as normal(0, 0.02), the bias as 0. Without a bias,
/// `bias` has no memory. Result: how forward stores y.
template <index_t In, index_t Out, with_bias Bias = with_bias::yes, class Space = space<>,
          result_as Result = result_as::numbers>
struct linear {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t inputs = In;
    static constexpr index_t outputs = Out;
    using input = activations<T const, In, Backend>;         ///< (R, In)
    using grad_output = activations<T const, Out, Backend>;  ///< (R, Out)

    param<extents<Out, In>, Space> weight = make_param<extents<Out, In>, Space>(role::weight);  ///< (Out, In)
    param<extents<Out>, Space> bias = make_param<extents<Out>, Space>(role::bias);              ///< (Out)

    /// FLOPs of the product per row.
    static constexpr double flops(double = 0) { return 2 * static_cast<double>(In) * static_cast<double>(Out); }

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        input x;                                 ///< owned by the caller; must live until backward
        result_rows<Result, T, Out, Backend> y;  ///< in ctx.saved
    };

    /// Memory for y with `rows` rows, in ctx.saved.
    static auto room(context<Backend>& ctx, index_t rows) { return take_result<Result, T, Out>(ctx, ctx.saved, rows); }

    static constexpr bool adds_residual = Result == result_as::numbers;  ///< whether forward takes an addend

    /// y (R, Out) of x (R, In), plus the addend.
    saved_activations forward(context<Backend>& ctx, input const& x,
                              addend<T, Out, Backend> const& residual = {}) const {
        saved_activations const s{x, room(ctx, x.extent(0))};
        matmul(ctx, s.y, x, transposed(weight.value), {.bias = bias_part<0, Out>(), .residual = residual.rows});
        return s;
    }

    /// Overwrites dx (R, In) or adds to it, according to mode. Weight and bias gradients accumulate.
    void backward(context<Backend>& ctx, saved_activations const& s, grad_output const& dy,
                  activations<T, In, Backend> const& dx, into mode = into::overwrite) {
        backward_part<0, Out>(ctx, s.x, dy, dx, mode);
    }
    /// Weight and bias gradients alone.
    void backward(context<Backend>& ctx, saved_activations const& s, grad_output const& dy, no_gradient) {
        add_gradients<0, Out>(ctx, s.x, dy, detail::as_matrix(dy));
    }

    /// Computes only outputs First .. First + Count - 1: y (R, Count) from x (R, In), written to the caller's memory.
    template <index_t First, index_t Count>
    void apply_part(context<Backend>& ctx, activations<T, Count, Backend> const& y, input const& x) const {
        matmul(ctx, y, x, transposed(part<First, Count>()), {.bias = bias_part<First, Count>()});
    }
    /// The weight rows of these outputs.
    template <index_t First, index_t Count>
    view<typename Space::weights const, extents<Count, In>, Backend> part() const {
        static_assert(First >= 0 && First + Count <= Out, "calm::linear: the part must lie inside the outputs");
        return {weight.value.data() + First * In, {}};
    }
    /// The biases of these outputs, if there are any.
    template <index_t First, index_t Count> std::optional<vector_view<T const, Count, Backend>> bias_part() const {
        if constexpr (Bias == with_bias::yes)
            return vector_view<T const, Count, Backend>(bias.value.data() + First, {});
        else
            return std::nullopt;
    }
    /// Backward of apply_part for dy (R, Count). The part's weight and bias gradients accumulate; dx (R, In) is
    /// overwritten or added to, according to mode.
    template <index_t First, index_t Count>
    void backward_part(context<Backend>& ctx, input const& x, activations<T const, Count, Backend> const& dy,
                       activations<T, In, Backend> const& dx, into mode) {
        arena_scope const scope(ctx.workspace);
        auto const factor = precast_factor(ctx, dy);
        add_gradients<First, Count>(ctx, x, dy, factor);
        matmul(ctx, dx, factor, part<First, Count>(), {.mode = mode});
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visitor("weight", weight);
        if constexpr (Bias == with_bias::yes) visitor("bias", bias);
    }

private:
    // Parameter gradients of outputs First .. First + Count - 1. `factor` is dy again, as the products read it.
    template <index_t First, index_t Count, class Factor>
    void add_gradients(context<Backend>& ctx, input const& x, activations<T const, Count, Backend> const& dy,
                       Factor const& factor) {
        view<T, extents<Count, In>, Backend> const dw(weight.gradient().data() + First * In, {});
        matmul(ctx, dw, transposed(factor), x, {.mode = into::accumulate});
        if constexpr (Bias == with_bias::yes) {
            view<T, extents<Count>, Backend> const db(bias.gradient().data() + First, {});
            with_numbers([&](auto const& terms) { add_sum_axis0(ctx, db, terms); }, dy);
        }
        if (ctx.after_gradients) ctx.after_gradients();
    }
};

}  // namespace calm
