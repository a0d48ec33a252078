#pragma once
// y = x W^T + b, W stored (out, in) as in the published checkpoints.

#include "calm/nn/param.hpp"
#include "calm/tensor/matmul_with.hpp"

namespace calm {

// Whether a linear layer adds a bias.
enum class with_bias : bool { no, yes };

// A row of In numbers to one of Out. It starts as normal(0, 0.02), bias 0; without a bias `bias` has no memory. Result:
// how forward stores y.
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
    using slopes = activations<T const, Out, Backend>;  // (R, Out), of the output

    param<extents<Out, In>, Space> weight = make_param<extents<Out, In>, Space>(role::weight);  // (Out, In)
    param<extents<Out>, Space> bias = make_param<extents<Out>, Space>(role::bias);              // (Out)

    // Of the product, a row.
    static constexpr double flops(double = 0) { return 2 * static_cast<double>(In) * static_cast<double>(Out); }

    struct saved {
        input x;                                 // the caller's: it stays until backward
        result_rows<Result, T, Out, Backend> y;  // of ctx.saved
    };

    // Memory for y of so many rows, in ctx.saved.
    static auto room(context<Backend>& ctx, index_t rows) { return take_result<Result, T, Out>(ctx, ctx.saved, rows); }

    // y (R, Out) from x (R, In), into the caller's memory.
    void apply(context<Backend>& ctx, output const& y, input const& x) const { apply_part<0, Out>(ctx, y, x); }

    // forward_onto adds its result to rows.
    static constexpr bool goes_onto = Result == result_as::numbers;

    saved forward(context<Backend>& ctx, input const& x) const {
        saved const s{x, room(ctx, x.extent(0))};
        apply(ctx, s.y, x);
        return s;
    }

    // The same, where y is the result and rows `plus` (R, Out), which stay.
    saved forward_onto(context<Backend>& ctx, matrix_view<T const, Out, Backend> const& plus, input const& x) const {
        saved const s{x, room(ctx, x.extent(0))};
        if constexpr (Bias == with_bias::yes)
            matmul_onto(ctx, s.y, plus, x, transposed(weight.value), bias.read());
        else
            matmul_onto(ctx, s.y, plus, x, transposed(weight.value));
        return s;
    }

    // dx (R, In) is overwritten or added to, as mode says; weight and bias gradients accumulate.
    void backward(context<Backend>& ctx, saved const& s, slopes const& dy, activations<T, In, Backend> const& dx,
                  into mode = into::overwrite) {
        backward_part<0, Out>(ctx, s.x, dy, dx, mode);
    }
    // The same where nobody wants dx.
    void backward_parameters(context<Backend>& ctx, saved const& s, slopes const& dy) {
        add_gradients<0, Out>(ctx, s.x, dy, detail::as_matrix(dy));
    }

    // Outputs First .. First + Count alone: y (R, Count) from x (R, In), into the caller's memory.
    template <index_t First, index_t Count>
    void apply_part(context<Backend>& ctx, activations<T, Count, Backend> const& y, input const& x) const {
        if constexpr (Bias == with_bias::yes)
            matmul(ctx, y, x, transposed(part<First, Count>()), bias_part<First, Count>());
        else
            matmul(ctx, y, x, transposed(part<First, Count>()));
    }
    // Their rows of the weight.
    template <index_t First, index_t Count>
    view<typename Space::weights const, extents<Count, In>, Backend> part() const {
        static_assert(First >= 0 && First + Count <= Out, "calm::linear: the part must lie inside the outputs");
        return {weight.value.data() + First * In, {}};
    }
    // Their biases.
    template <index_t First, index_t Count> view<T const, extents<Count>, Backend> bias_part() const {
        return {bias.value.data() + First, {}};
    }
    // From dy (R, Count) of that part: its weight and bias gradients accumulate, dx (R, In) is overwritten or added to,
    // as mode says.
    template <index_t First, index_t Count>
    void backward_part(context<Backend>& ctx, input const& x, activations<T const, Count, Backend> const& dy,
                       activations<T, In, Backend> const& dx, into mode) {
        arena_scope const scope(ctx.scratch);
        auto const factor = shared_factor(ctx, dy);
        add_gradients<First, Count>(ctx, x, dy, factor);
        matmul(ctx, dx, factor, part<First, Count>(), mode);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visitor("weight", weight);
        if constexpr (Bias == with_bias::yes) visitor("bias", bias);
    }

private:
    // Of that part, from dy (R, Count), which `factor` is too.
    template <index_t First, index_t Count, class Factor>
    void add_gradients(context<Backend>& ctx, input const& x, activations<T const, Count, Backend> const& dy,
                       Factor const& factor) {
        view<T, extents<Count, In>, Backend> const dw(weight.gradient().data() + First * In, {});
        matmul(ctx, dw, transposed(factor), x, into::accumulate);
        if constexpr (Bias == with_bias::yes) {
            view<T, extents<Count>, Backend> const db(bias.gradient().data() + First, {});
            with_numbers([&](auto const& terms) { add_row_sums(ctx, db, terms); }, dy);
        }
        if (ctx.after_gradients) ctx.after_gradients();
    }
};

// The same rows x (R, In) through several layers without bias, as each does it by itself; what they saved, in order.
template <class Layer, class... Others>
std::tuple<typename Layer::saved, typename Others::saved...> forward_each(context<typename Layer::Backend>& ctx,
                                                                          typename Layer::input const& x,
                                                                          Layer const& layer, Others const&... others) {
    auto const prepare = [&]<class Each>(Each const&) { return typename Each::saved{x, Each::room(ctx, x.extent(0))}; };
    std::tuple<typename Layer::saved, typename Others::saved...> all{prepare(layer), prepare(others)...};
    std::apply(
        [&](auto const&... s) {
            [&](auto const&... of) { matmul_each(ctx, x, std::pair(s.y, transposed(of.weight.value))...); }(layer,
                                                                                                            others...);
        },
        all);
    return all;
}

}  // namespace calm
