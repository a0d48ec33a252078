#pragma once
// y = x W^T + b, with W stored (out, in) as in the published checkpoints.

#include "calm/nn/param.hpp"
#include "calm/tensor/detail/ops/matmul_with.hpp"

namespace calm {

// Whether a linear layer adds a bias.
enum class with_bias : bool { no, yes };

// A linear map from In to Out elements per row. W is initialised as normal(0, 0.02), the bias as 0. Without a bias,
// `bias` has no memory. Result: how forward stores y.
template <index_t In, index_t Out, with_bias Bias = with_bias::yes, class Space = space<>,
          result_as Result = result_as::numbers>
struct linear {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = In;
    static constexpr index_t outputs = Out;
    using input = activations<T const, In, Backend>;    // (R, In)
    using output = activations<T, Out, Backend>;        // (R, Out)
    using slopes = activations<T const, Out, Backend>;  // grad_output (R, Out)

    param<extents<Out, In>, Space> weight = make_param<extents<Out, In>, Space>(role::weight);  // (Out, In)
    param<extents<Out>, Space> bias = make_param<extents<Out>, Space>(role::bias);              // (Out)

    // FLOPs of the product per row.
    static constexpr double flops(double = 0) { return 2 * static_cast<double>(In) * static_cast<double>(Out); }

    struct saved_activations {
        input x;                                 // owned by the caller; must live until backward
        result_rows<Result, T, Out, Backend> y;  // in ctx.saved
    };

    // Memory for y with `rows` rows, in ctx.saved.
    static auto room(context<Backend>& ctx, index_t rows) { return take_result<Result, T, Out>(ctx, ctx.saved, rows); }

    // y (R, Out) = the result for x (R, In), written to the caller's memory.
    void apply(context<Backend>& ctx, output const& y, input const& x) const { apply_part<0, Out>(ctx, y, x); }

    // Whether forward_residual exists: it adds a residual.
    static constexpr bool adds_residual = Result == result_as::numbers;

    saved_activations forward(context<Backend>& ctx, input const& x) const {
        saved_activations const s{x, room(ctx, x.extent(0))};
        apply(ctx, s.y, x);
        return s;
    }

    // As forward, plus a residual: y = plus + result. `addend` (R, Out) is only read.
    saved_activations forward_residual(context<Backend>& ctx, matrix_view<T const, Out, Backend> const& addend,
                                       input const& x) const {
        saved_activations const s{x, room(ctx, x.extent(0))};
        if constexpr (Bias == with_bias::yes)
            matmul_residual(ctx, s.y, addend, x, transposed(weight.value), bias.read());
        else
            matmul_residual(ctx, s.y, addend, x, transposed(weight.value));
        return s;
    }

    // Overwrites dx (R, In) or adds to it, according to mode. Weight and bias gradients accumulate.
    void backward(context<Backend>& ctx, saved_activations const& s, slopes const& dy,
                  activations<T, In, Backend> const& dx, into mode = into::overwrite) {
        backward_part<0, Out>(ctx, s.x, dy, dx, mode);
    }
    // As backward, without computing dx.
    void backward_parameters(context<Backend>& ctx, saved_activations const& s, slopes const& dy) {
        add_gradients<0, Out>(ctx, s.x, dy, detail::as_matrix(dy));
    }

    // Computes only outputs First .. First + Count - 1: y (R, Count) from x (R, In), written to the caller's memory.
    template <index_t First, index_t Count>
    void apply_part(context<Backend>& ctx, activations<T, Count, Backend> const& y, input const& x) const {
        if constexpr (Bias == with_bias::yes)
            matmul(ctx, y, x, transposed(part<First, Count>()), bias_part<First, Count>());
        else
            matmul(ctx, y, x, transposed(part<First, Count>()));
    }
    // The weight rows of these outputs.
    template <index_t First, index_t Count>
    view<typename Space::weights const, extents<Count, In>, Backend> part() const {
        static_assert(First >= 0 && First + Count <= Out, "calm::linear: the part must lie inside the outputs");
        return {weight.value.data() + First * In, {}};
    }
    // The biases of these outputs.
    template <index_t First, index_t Count> view<T const, extents<Count>, Backend> bias_part() const {
        return {bias.value.data() + First, {}};
    }
    // Backward of apply_part for dy (R, Count). The part's weight and bias gradients accumulate; dx (R, In) is
    // overwritten or added to, according to mode.
    template <index_t First, index_t Count>
    void backward_part(context<Backend>& ctx, input const& x, activations<T const, Count, Backend> const& dy,
                       activations<T, In, Backend> const& dx, into mode) {
        arena_scope const scope(ctx.workspace);
        auto const factor = precast_factor(ctx, dy);
        add_gradients<First, Count>(ctx, x, dy, factor);
        matmul(ctx, dx, factor, part<First, Count>(), mode);
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
        matmul(ctx, dw, transposed(factor), x, into::accumulate);
        if constexpr (Bias == with_bias::yes) {
            view<T, extents<Count>, Backend> const db(bias.gradient().data() + First, {});
            with_numbers([&](auto const& terms) { add_sum_axis0(ctx, db, terms); }, dy);
        }
        if (ctx.after_gradients) ctx.after_gradients();
    }
};

// Applies several bias-free layers to x (R, In), with the results of separate calls to forward. Returns their saved
// activations in order.
template <class Layer, class... Others>
std::tuple<typename Layer::saved_activations, typename Others::saved_activations...>
forward_each(context<typename Layer::Backend>& ctx, typename Layer::input const& x, Layer const& layer,
             Others const&... others) {
    auto const prepare = [&]<class Each>(Each const&) {
        return typename Each::saved_activations{x, Each::room(ctx, x.extent(0))};
    };
    std::tuple<typename Layer::saved_activations, typename Others::saved_activations...> all{prepare(layer),
                                                                                             prepare(others)...};
    std::apply(
        [&](auto const&... s) {
            [&](auto const&... of) {
                matmul_grouped(ctx, x, std::pair(s.y, transposed(of.weight.value))...);
            }(layer, others...);
        },
        all);
    return all;
}

}  // namespace calm
