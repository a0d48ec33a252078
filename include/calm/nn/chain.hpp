#pragma once
// Combinators: layers in a row, and a layer beside the identity. A layer is anything with
//     saved forward(ctx, x) const
//         saved.y is the result; memory from ctx.saved
//     void backward(ctx, saved, dy, dx)
//         dx is overwritten, parameter gradients accumulate; may consume saved, never reads saved.y
//     void visit(visitor)
//         names its parameters
// and the sizes `inputs` and `outputs`; one that is asked for its FLOPs has
//     static constexpr double flops(double attended)
//         of its products forward, a row; attended: to how many positions a row attends, on average

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <type_traits>

#include "calm/nn/param.hpp"
#include "calm/tensor/activations.hpp"
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

// y = Function::of(x), an expression, element by element. Result: how y is stored.
template <class Function, index_t D, class Space = space<>, result_as Result = result_as::numbers>
struct elementwise_layer {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }  // it has no products
    struct saved {
        activations<T const, D, Backend> x;    // (R, D)
        result_rows<Result, T, D, Backend> y;  // (R, D)
    };
    saved forward(context<Backend>& ctx, activations<T const, D, Backend> const& x) const {
        saved const s{x, take_result<Result, T, D>(ctx, ctx.saved, x.extent(0))};
        with_numbers(
            [&](auto const& numbers) {
                with_numbers([&](auto const& y) { evaluate(ctx, y, Function::of(numbers)); }, s.y);
            },
            x);
        return s;
    }
    // x, dy and dx are stored alike.
    void backward(context<Backend>& ctx, saved const& s, activations<T const, D, Backend> const& dy,
                  activations<T, D, Backend> const& dx) {
        with_numbers([&](auto const& x, auto const& slopes,
                         auto const& to) { differentiate(ctx, Function::of(wrt(x, to)), slopes); },
                     s.x, dy, dx);
    }
    template <class Visitor> void visit(Visitor&) {}
};

// y = silu(x).
template <index_t D, class Space = space<>, result_as Result = result_as::numbers>
using silu_layer = elementwise_layer<functions::silu, D, Space, Result>;
// y = max(x, 0).
template <index_t D, class Space = space<>, result_as Result = result_as::numbers>
using relu_layer = elementwise_layer<functions::relu, D, Space, Result>;

// The name of a child, as a template argument.
template <std::size_t N> struct child_name {
    char text[N]{};  // ends in 0
    // Of a literal.
    constexpr child_name(char const (&literal)[N]) {  // NOLINT(google-explicit-constructor): it is one
        for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
    }
    static constexpr bool empty = N == 1;  // whether it is ""
};

// A layer of a chain under a name of its own, "name."; under "" its parameters have their own names alone. Those of a
// later turn are visited after all of the earlier ones, where checkpoints name a layer behind one that it precedes.
template <child_name Name, class Layer, int Turn = 0> struct named : Layer {
    static constexpr auto name = Name;  // without the point
    static constexpr int turn = Turn;   // from 0
};

namespace detail {
template <class Layer> inline constexpr bool is_named = false;
template <child_name Name, class Layer, int Turn> inline constexpr bool is_named<named<Name, Layer, Turn>> = true;

// Whether a layer takes all that a chain is given besides the rows.
template <class Layer, class... Given>
concept goes_forward_with = requires(Layer const& layer, Given&... given) {
    layer.forward(given...);
};
template <class Layer, class... Given>
concept goes_backward_with = requires(Layer& layer, Given&... given) {
    layer.backward(given...);
};
template <class Layer, class... Given>
concept extends_with = requires(Layer const& layer, Given&... given) {
    layer.extend(given...);
};

// Whether a layer can add its result to rows: it has forward_onto, and extend_onto if it extends.
template <class Layer> inline constexpr bool goes_onto = false;
template <class Layer>
requires requires {
    Layer::goes_onto;
}
inline constexpr bool goes_onto<Layer> = Layer::goes_onto;

// No rows: nothing is added to, or nobody wants them.
struct no_rows {};

// Whether a layer can add the gradient of its rows to others: it has backward_onto.
template <class Layer> inline constexpr bool goes_back_onto = false;
template <class Layer>
requires requires {
    Layer::goes_back_onto;
}
inline constexpr bool goes_back_onto<Layer> = Layer::goes_back_onto;

// A gradient that is to become that of a layer's rows and rows `plus`, which stay.
template <class DX, class Plus> struct gradient_onto {
    DX dx;
    Plus plus;
};
template <class DX> inline constexpr bool is_onto = false;
template <class DX, class Plus> inline constexpr bool is_onto<gradient_onto<DX, Plus>> = true;

// Whether a layer has a name, found by overloads: nvcc 13.0 gets comparisons of names wrong in constant expressions.
template <child_name Name> struct called {
    template <class Layer, int Turn> static std::true_type so(named<Name, Layer, Turn> const*);
    static std::false_type so(void const*);
};
template <child_name Name, class Layer>
inline constexpr bool is_called = decltype(called<Name>::so(static_cast<Layer const*>(nullptr)))::value;

// How many turns a visit of a layer has.
template <class Layer>
concept has_turns = requires {
    Layer::turns;
};
template <class Layer> inline constexpr int turns_of = 1;
template <has_turns Layer> inline constexpr int turns_of<Layer> = Layer::turns;

// The same of a child of a chain.
template <class Child> inline constexpr int turns_of_child = 1;
template <child_name Name, class Layer, int Turn>
inline constexpr int turns_of_child<named<Name, Layer, Turn>> = Name.empty ? turns_of<Layer> : Turn + 1;

// One turn of the visit of a layer.
template <int Turn, class Layer, class Visitor> void visit_turn_of(Layer& layer, Visitor& visitor) {
    if constexpr (has_turns<Layer>)
        layer.template visit_turn<Turn>(visitor);
    else if constexpr (Turn == 0)
        layer.visit(visitor);
}
}  // namespace detail

// Layers one after the other, named by their place, "0", "1", ..., or as `named` says. Each takes rows as wide as the
// one before gives. What forward, backward and extend are given besides goes to the layers that take it.
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

    // Of the products, a row; attention is given to how many positions a row attends.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return (Layers::flops(attended...) + ...);
    }

    template <std::size_t I> auto& layer() { return std::get<I>(layers); }              // number I, from 0
    template <std::size_t I> auto const& layer() const { return std::get<I>(layers); }  // number I, from 0
    template <child_name Name> auto& child() { return layer<place_of<Name>()>(); }      // the one that is named so

    // y (R, outputs) of x (R, inputs).
    template <class Context, class X, class... More>
    saved forward(Context& ctx, X const& x, More const&... more) const {
        return forward_onto(ctx, detail::no_rows{}, x, more...);
    }
    static constexpr bool goes_onto = detail::goes_onto<last>;  // whether results can be added to rows
    // The same, where y is the result and rows `plus` (R, outputs), which stay.
    template <class Context, class Plus, class X, class... More>
    saved forward_onto(Context& ctx, Plus const& plus, X const& x, More const&... more) const {
        check_sizes(std::make_index_sequence<depth - 1>{});
        saved s{};
        forward_from<0>(ctx, s, plus, x, more...);
        s.y = std::get<depth - 1>(s.all).y;
        return s;
    }

    // Overwrites dx (R, inputs) with the gradient that dy (R, outputs) gives x; the parameters' accumulate. Consumes
    // what was saved.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved const& s, DY const& dy, DX const& dx, More const&... more) {
        arena_scope const scope(ctx.scratch);
        backward_from<depth - 1>(ctx, s, dy, dx, more...);
    }
    static constexpr bool goes_back_onto = detail::goes_back_onto<first>;  // whether dx can be added to rows
    // The same, where dx is the gradient and rows `plus` (R, inputs), which stay.
    template <class Context, class DY, class DX, class Plus, class... More>
    void backward_onto(Context& ctx, saved const& s, DY const& dy, DX const& dx, Plus const& plus,
                       More const&... more) {
        arena_scope const scope(ctx.scratch);
        backward_from<depth - 1>(ctx, s, dy, detail::gradient_onto<DX, Plus>{dx, plus}, more...);
    }
    // The same where nobody wants dx.
    template <class Context, class DY> void backward_parameters(Context& ctx, saved const& s, DY const& dy) {
        arena_scope const scope(ctx.scratch);
        backward_from<depth - 1>(ctx, s, dy, detail::no_rows{});
    }

    // The same as forward for rows that follow those in the cache: layers with `extend` extend, the others go forward.
    template <class Context, class X, class... More> auto extend(Context& ctx, X const& x, More&... more) const {
        return extend_from<0>(ctx, detail::no_rows{}, x, more...);
    }
    // The same, where what is given is the result and rows `plus` (R, outputs), which stay.
    template <class Context, class Plus, class X, class... More>
    auto extend_onto(Context& ctx, Plus const& plus, X const& x, More&... more) const {
        return extend_from<0>(ctx, plus, x, more...);
    }

    // How many turns a visit has.
    static constexpr int turns = std::max({detail::turns_of_child<Layers>...});
    template <class Visitor> void visit(Visitor& visitor) {
        [&]<int... Turn>(std::integer_sequence<int, Turn...>) {
            (visit_turn<Turn>(visitor), ...);
        }
        (std::make_integer_sequence<int, turns>{});
    }
    // One of them.
    template <int Turn, class Visitor> void visit_turn(Visitor& visitor) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (visit_child<Turn, I>(visitor), ...);
        }
        (std::make_index_sequence<depth>{});
    }

private:
    template <child_name Name> static constexpr std::size_t place_of() {
        constexpr std::array<bool, depth> called{detail::is_called<Name, Layers>...};
        return static_cast<std::size_t>(std::find(called.begin(), called.end(), true) - called.begin());
    }
    template <std::size_t... I> static constexpr void check_sizes(std::index_sequence<I...>) {
        static_assert(((std::tuple_element_t<I, tuple>::outputs == std::tuple_element_t<I + 1, tuple>::inputs) && ...),
                      "calm::chain: the outputs of a layer must equal the inputs of the next");
    }
    template <int Turn, std::size_t I, class Visitor> void visit_child(Visitor& visitor) {
        auto& child = std::get<I>(layers);
        using child_type = std::tuple_element_t<I, tuple>;
        if constexpr (!detail::is_named<child_type>) {
            if constexpr (Turn == 0) visit_as(std::to_string(I), child, visitor);
        } else if constexpr (child_type::name.empty)
            detail::visit_turn_of<Turn>(child, visitor);
        else if constexpr (Turn == child_type::turn)
            visit_as(child_type::name.text, child, visitor);
    }
    // Whether layer I is to add its result to rows.
    template <std::size_t I, class Plus>
    static constexpr bool adds = I + 1 == depth && !std::is_same_v<Plus, detail::no_rows>;

    template <std::size_t I, class Context, class Plus, class X, class... More>
    void forward_from(Context& ctx, saved& s, Plus const& plus, X const& x, More const&... more) const {
        auto const& layer = std::get<I>(layers);
        auto const forward = [&](auto const&... given) {
            if constexpr (adds<I, Plus>)
                return layer.forward_onto(ctx, plus, given...);
            else
                return layer.forward(ctx, given...);
        };
        if constexpr (detail::goes_forward_with<std::tuple_element_t<I, tuple>, Context, X const, More const...>)
            std::get<I>(s.all) = forward(x, more...);
        else
            std::get<I>(s.all) = forward(x);
        if constexpr (I + 1 < depth) forward_from<I + 1>(ctx, s, plus, std::get<I>(s.all).y, more...);
    }
    template <std::size_t I, class Context, class Plus, class X, class... More>
    auto extend_from(Context& ctx, Plus const& plus, X const& x, More&... more) const {
        auto const& layer = std::get<I>(layers);
        auto const y = [&] {
            if constexpr (detail::extends_with<std::tuple_element_t<I, tuple>, Context, X const, More...>) {
                if constexpr (adds<I, Plus>)
                    return layer.extend_onto(ctx, plus, x, more...);
                else
                    return layer.extend(ctx, x, more...);
            } else if constexpr (adds<I, Plus>)
                return layer.forward_onto(ctx, plus, x).y;
            else
                return layer.forward(ctx, x).y;
        }();
        if constexpr (I + 1 < depth)
            return extend_from<I + 1>(ctx, plus, y, more...);
        else
            return y;
    }
    template <std::size_t I, class Context, class DY, class DX, class... More>
    void backward_from(Context& ctx, saved const& s, DY const& dy, DX const& dx, More const&... more) {
        auto& layer = std::get<I>(layers);
        auto const& of_layer = std::get<I>(s.all);
        if constexpr (I == 0 && std::is_same_v<DX, detail::no_rows>)
            layer.backward_parameters(ctx, of_layer, dy);
        else if constexpr (I == 0 && detail::is_onto<DX>)
            layer.backward_onto(ctx, of_layer, dy, dx.dx, dx.plus);
        else if constexpr (I == 0)
            backward_of(layer, ctx, of_layer, dy, dx, more...);
        else {
            constexpr index_t width = std::tuple_element_t<I, tuple>::inputs;
            auto const between = ctx.scratch.template take<scalar>(extents<dyn, width>(dy.extent(0)));
            backward_of(layer, ctx, of_layer, dy, between, more...);
            backward_from<I - 1>(ctx, s, between, dx, more...);
        }
    }
    template <class Layer, class Context, class Saved, class DY, class DX, class... More>
    static void backward_of(Layer& layer, Context& ctx, Saved const& s, DY const& dy, DX const& dx,
                            More const&... more) {
        if constexpr (detail::goes_backward_with<Layer, Context, Saved const, DY const, DX const, More const...>)
            layer.backward(ctx, s, dy, dx, more...);
        else
            layer.backward(ctx, s, dy, dx);
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

    // The layer's, a row: see chain.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return Layer::flops(attended...);
    }

    using saved = typename Layer::saved;  // the layer's; forward has added x to its y

    // y (R, D) of x (R, D).
    template <class Context, class X, class... More>
    saved forward(Context& ctx, X const& x, More const&... more) const {
        if constexpr (detail::goes_onto<Layer>) {
            return inner.forward_onto(ctx, x, x, more...);
        } else {
            saved const s = inner.forward(ctx, x, more...);
            evaluate(ctx, s.y, s.y + x);
            return s;
        }
    }
    // Overwrites dx (R, D) with the gradient that dy (R, D) gives x; the parameters' accumulate.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved const& s, DY const& dy, DX const& dx, More const&... more) {
        if constexpr (detail::goes_back_onto<Layer>) {
            inner.backward_onto(ctx, s, dy, dx, dy, more...);
        } else {
            inner.backward(ctx, s, dy, dx, more...);
            evaluate(ctx, dx, dx + dy);
        }
    }
    // The same as forward for rows that follow those in the cache.
    template <class Context, class X, class... More> auto extend(Context& ctx, X const& x, More&... more) const {
        if constexpr (detail::goes_onto<Layer>) {
            return inner.extend_onto(ctx, x, x, more...);
        } else {
            auto const y = inner.extend(ctx, x, more...);
            evaluate(ctx, y, y + x);
            return y;
        }
    }
    static constexpr int turns = detail::turns_of<Layer>;  // of a visit
    template <class Visitor> void visit(Visitor& visitor) { inner.visit(visitor); }
    // One of them.
    template <int Turn, class Visitor> void visit_turn(Visitor& visitor) {
        detail::visit_turn_of<Turn>(inner, visitor);
    }
};

}  // namespace calm
