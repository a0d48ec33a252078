#pragma once
// Combinators: layers in a row, and a layer beside the identity. A layer is anything with
//     saved forward(ctx, x) const
//         saved.y is the result; memory from ctx.saved
//     void backward(ctx, saved, dy, dx)
//         dx is overwritten, parameter gradients accumulate; may consume saved, never reads saved.y
//     void visit(visitor)
//         names its parameters
// and the sizes `inputs` and `outputs`.

#include <tuple>
#include <type_traits>

#include "calm/nn/param.hpp"
#include "calm/tensor/expr.hpp"

namespace calm {

// What elementwise_layer may be of.
namespace functions {
// silu(x).
struct silu {
    template <class X> static auto of(X&& x) { return calm::silu(std::forward<X>(x)); }
};
// max(x, 0); at 0 the slope is 0.
struct relu {
    template <class X> static auto of(X&& x) { return maximum(0.0, std::forward<X>(x)); }
};
}  // namespace functions

// y = Function::of(x), an expression, element by element.
template <class Function, index_t D, class Space = space<>> struct elementwise_layer {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    struct saved {
        matrix_view<T const, D, Backend> x;  // (R, D)
        matrix_view<T, D, Backend> y;        // (R, D)
    };
    saved forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        saved const s{x, ctx.saved.template take<T>(x.extents())};
        evaluate(ctx, s.y, Function::of(x));
        return s;
    }
    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        differentiate(ctx, Function::of(wrt(s.x, dx)), dy);
    }
    template <class Visitor> void visit(Visitor&) {}
};

// y = silu(x).
template <index_t D, class Space = space<>> using silu_layer = elementwise_layer<functions::silu, D, Space>;
// y = max(x, 0).
template <index_t D, class Space = space<>> using relu_layer = elementwise_layer<functions::relu, D, Space>;

// Layers one after the other, named by their place: "0", "1", ... Each takes rows as wide as the one before gives.
template <class... Layers> struct chain {
    static constexpr std::size_t depth = sizeof...(Layers);  // how many layers
    using tuple = std::tuple<Layers...>;                     // what holds them
    using first = std::tuple_element_t<0, tuple>;            // the layer that takes x
    using last = std::tuple_element_t<depth - 1, tuple>;     // the layer that gives y
    using space_type = space_of<first>;
    using scalar = typename space_type::storage;
    static constexpr index_t inputs = first::inputs;
    static constexpr index_t outputs = last::outputs;

    tuple layers;  // in the order of forward

    struct saved {
        std::tuple<typename Layers::saved...> all;           // of each layer
        decltype(std::declval<typename last::saved>().y) y;  // (R, outputs)
    };

    template <std::size_t I> auto& layer() { return std::get<I>(layers); }              // number I, from 0
    template <std::size_t I> auto const& layer() const { return std::get<I>(layers); }  // number I, from 0

    template <class Context, class X> saved forward(Context& ctx, X const& x) const {
        check_sizes(std::make_index_sequence<depth - 1>{});
        auto const all = forward_from<0>(ctx, x);
        return {all, std::get<depth - 1>(all).y};
    }

    template <class Context, class DY, class DX>
    void backward(Context& ctx, saved const& s, DY const& dy, DX const& dx) {
        arena_scope const scope(ctx.scratch);
        backward_from<depth - 1>(ctx, s, dy, dx);
    }
    // The same where nobody wants dx.
    template <class Context, class DY> void backward_parameters(Context& ctx, saved const& s, DY const& dy) {
        arena_scope const scope(ctx.scratch);
        backward_from<depth - 1>(ctx, s, dy, unwanted{});
    }

    template <class Visitor> void visit(Visitor& visitor) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (visit_as(std::to_string(I), std::get<I>(layers), visitor), ...);
        }
        (std::make_index_sequence<depth>{});
    }

private:
    struct unwanted {};
    template <std::size_t... I> static constexpr void check_sizes(std::index_sequence<I...>) {
        static_assert(((std::tuple_element_t<I, tuple>::outputs == std::tuple_element_t<I + 1, tuple>::inputs) && ...),
                      "calm::chain: the outputs of a layer must equal the inputs of the next");
    }
    template <std::size_t I, class Context, class X> auto forward_from(Context& ctx, X const& x) const {
        auto const s = std::get<I>(layers).forward(ctx, x);
        if constexpr (I + 1 < depth)
            return std::tuple_cat(std::tuple(s), forward_from<I + 1>(ctx, s.y));
        else
            return std::tuple(s);
    }
    template <std::size_t I, class Context, class DY, class DX>
    void backward_from(Context& ctx, saved const& s, DY const& dy, DX const& dx) {
        if constexpr (I == 0) {
            if constexpr (std::is_same_v<DX, unwanted>)
                std::get<0>(layers).backward_parameters(ctx, std::get<0>(s.all), dy);
            else
                std::get<0>(layers).backward(ctx, std::get<0>(s.all), dy, dx);
        } else {
            constexpr index_t width = std::tuple_element_t<I, tuple>::inputs;
            auto const between = ctx.scratch.template take<scalar>(extents<dyn, width>(dy.extent(0)));
            std::get<I>(layers).backward(ctx, std::get<I>(s.all), dy, between);
            backward_from<I - 1>(ctx, s, between, dx);
        }
    }
};

// y = x + inner(x); the parameters are named as the layer's.
template <class Layer> struct residual {
    using space_type = space_of<Layer>;
    using scalar = typename space_type::storage;
    static constexpr index_t inputs = Layer::inputs;
    static constexpr index_t outputs = Layer::outputs;
    static_assert(inputs == outputs, "calm::residual: the layer's outputs must equal its inputs");

    Layer inner;  // as wide at both ends

    using saved = typename Layer::saved;  // the layer's; forward has added x to its y

    template <class Context, class X> saved forward(Context& ctx, X const& x) const {
        saved const s = inner.forward(ctx, x);
        evaluate(ctx, s.y, s.y + x);
        return s;
    }
    template <class Context, class DY, class DX>
    void backward(Context& ctx, saved const& s, DY const& dy, DX const& dx) {
        inner.backward(ctx, s, dy, dx);
        evaluate(ctx, dx, dx + dy);
    }
    template <class Visitor> void visit(Visitor& visitor) { inner.visit(visitor); }
};

}  // namespace calm
