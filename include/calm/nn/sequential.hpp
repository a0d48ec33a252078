#pragma once
// Combinators: `sequential` applies layers in sequence, `residual` adds a layer's input to its output.
// A layer is any type with
//     saved_activations forward(ctx, x) const
//         saved.y is the result; memory comes from ctx.saved
//     void backward(ctx, saved, dy, dx)
//         overwrites dx, accumulates parameter gradients; may consume saved, never reads saved.y
//     void visit(visitor)
//         names its parameters
// and the sizes `inputs` and `outputs`. To take part in FLOP counts it also has
//     static constexpr double flops(double attended)
//         FLOPs of its matrix products per row (forward); attended: mean number of positions attended to

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <type_traits>

#include "calm/nn/param.hpp"
#include "calm/tensor/detail/core/activations.hpp"
#include "calm/tensor/expr/expr.hpp"

namespace calm {

// Functions for elementwise_layer.
namespace functions {
// silu(x).
struct silu {
    template <class X> static auto of(X&& x) { return calm::silu(std::forward<X>(x)); }
};
// max(x, 0); the derivative at 0 is 0.
struct relu {
    template <class X> static auto of(X&& x) { return maximum(0.0, std::forward<X>(x)); }
};
}  // namespace functions

// y = Function::of(x), an elementwise expression. Result: how y is stored.
template <class Function, index_t D, class Space = space<>, result_as Result = result_as::numbers>
struct elementwise_layer {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }  // no matrix products
    struct saved_activations {
        activations<T const, D, Backend> x;    // (R, D)
        result_rows<Result, T, D, Backend> y;  // (R, D)
    };
    saved_activations forward(context<Backend>& ctx, activations<T const, D, Backend> const& x) const {
        saved_activations const s{x, take_result<Result, T, D>(ctx, ctx.saved, x.extent(0))};
        with_numbers(
            [&](auto const& numbers) {
                with_numbers([&](auto const& y) { evaluate(ctx, y, Function::of(numbers)); }, s.y);
            },
            x);
        return s;
    }
    // x, dy and dx must have the same storage type.
    void backward(context<Backend>& ctx, saved_activations const& s, activations<T const, D, Backend> const& dy,
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

// The name of a child layer, as a template argument.
template <std::size_t N> struct child_name {
    char text[N]{};  // zero-terminated
    // From a string literal.
    constexpr child_name(char const (&literal)[N]) {  // NOLINT(google-explicit-constructor): it is one
        for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
    }
    static constexpr bool empty = N == 1;  // whether the name is ""
};

// A layer of a chain with an explicit name: its parameters are "Name.weight" etc., or unprefixed if Name is "".
template <child_name Name, class Layer> struct named : Layer {
    static constexpr auto name = Name;  // without the dot
};

namespace detail {
template <class Layer> inline constexpr bool is_named = false;
template <child_name Name, class Layer> inline constexpr bool is_named<named<Name, Layer>> = true;

// Whether a layer accepts the extra arguments passed to a chain besides the rows.
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

// Whether a layer can add a residual to its result: it has forward_residual, and extend_residual if it has extend.
template <class Layer> inline constexpr bool adds_residual = false;
template <class Layer>
requires requires {
    Layer::adds_residual;
}
inline constexpr bool adds_residual<Layer> = Layer::adds_residual;

// Tag: no residual is given, or no gradient is wanted.
struct no_rows {};

// Whether a layer can add other rows to its input gradient: it has backward_residual.
template <class Layer> inline constexpr bool adds_residual_backward = false;
template <class Layer>
requires requires {
    Layer::adds_residual_backward;
}
inline constexpr bool adds_residual_backward<Layer> = Layer::adds_residual_backward;

// Destination of an input gradient: dx = gradient + plus; `addend` is only read.
template <class DX, class Addend> struct gradient_with_residual {
    DX dx;
    Addend addend;
};
template <class DX> inline constexpr bool has_residual = false;
template <class DX, class Addend> inline constexpr bool has_residual<gradient_with_residual<DX, Addend>> = true;

// Whether a layer has a given name. Resolved by overloads, because nvcc 13.0 miscompares names in constant expressions.
template <child_name Name> struct called {
    template <class Layer> static std::true_type so(named<Name, Layer> const*);
    static std::false_type so(void const*);
};
template <child_name Name, class Layer>
inline constexpr bool is_called = decltype(called<Name>::so(static_cast<Layer const*>(nullptr)))::value;
}  // namespace detail

// Layers in sequence, each as wide as the previous one's output. Children are named by index, "0", "1", ..., or by
// `named`. Extra arguments of forward, backward and extend reach the layers that accept them.
template <class... Layers> struct sequential {
    static constexpr std::size_t depth = sizeof...(Layers);  // how many layers
    using tuple = std::tuple<Layers...>;                     // their storage
    using first = std::tuple_element_t<0, tuple>;            // takes x
    using last = std::tuple_element_t<depth - 1, tuple>;     // returns y
    using space_type = space_of<first>;
    using scalar = typename space_type::storage;
    static constexpr index_t inputs = first::inputs;
    static constexpr index_t outputs = last::outputs;

    tuple layers;  // in the order of forward

    struct saved_activations {
        std::tuple<typename Layers::saved_activations...> all;           // one per layer
        decltype(std::declval<typename last::saved_activations>().y) y;  // (R, outputs)
    };

    // FLOPs of the matrix products per row; see the top of this file.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return (Layers::flops(attended...) + ...);
    }

    template <std::size_t I> auto& layer() { return std::get<I>(layers); }              // layer I, from 0
    template <std::size_t I> auto const& layer() const { return std::get<I>(layers); }  // layer I, from 0
    template <child_name Name> auto& child() { return layer<place_of<Name>()>(); }      // the child of that name

    // y (R, outputs) of x (R, inputs).
    template <class Context, class X, class... More>
    saved_activations forward(Context& ctx, X const& x, More const&... more) const {
        return forward_residual(ctx, detail::no_rows{}, x, more...);
    }
    static constexpr bool adds_residual = detail::adds_residual<last>;  // whether forward_residual works
    // As forward, plus a residual: y = plus + chain(x). `addend` (R, outputs) is only read.
    template <class Context, class Addend, class X, class... More>
    saved_activations forward_residual(Context& ctx, Addend const& addend, X const& x, More const&... more) const {
        check_sizes(std::make_index_sequence<depth - 1>{});
        saved_activations s{};
        forward_from<0>(ctx, s, addend, x, more...);
        s.y = std::get<depth - 1>(s.all).y;
        return s;
    }

    // Overwrites dx (R, inputs) with the gradient for x, given dy (R, outputs). Parameter gradients accumulate.
    // Consumes s.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        arena_scope const scope(ctx.workspace);
        backward_from<depth - 1>(ctx, s, dy, dx, more...);
    }
    static constexpr bool adds_residual_backward =
        detail::adds_residual_backward<first>;  // whether backward_residual works
    // As backward, but dx = gradient + plus. `addend` (R, inputs) is only read.
    template <class Context, class DY, class DX, class Addend, class... More>
    void backward_residual(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, Addend const& addend,
                           More const&... more) {
        arena_scope const scope(ctx.workspace);
        backward_from<depth - 1>(ctx, s, dy, detail::gradient_with_residual<DX, Addend>{dx, addend}, more...);
    }
    // As backward, without computing dx.
    template <class Context, class DY>
    void backward_parameters(Context& ctx, saved_activations const& s, DY const& dy) {
        arena_scope const scope(ctx.workspace);
        backward_from<depth - 1>(ctx, s, dy, detail::no_rows{});
    }

    // Forward for new rows that follow the cached ones: layers with `extend` extend, the others run forward.
    template <class Context, class X, class... More> auto extend(Context& ctx, X const& x, More&... more) const {
        return extend_from<0>(ctx, detail::no_rows{}, x, more...);
    }
    // As extend, plus a residual: returns plus + the result. `addend` (R, outputs) is only read.
    template <class Context, class Addend, class X, class... More>
    auto extend_residual(Context& ctx, Addend const& addend, X const& x, More&... more) const {
        return extend_from<0>(ctx, addend, x, more...);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (visit_child<I>(visitor), ...);
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
                      "calm::sequential: the outputs of a layer must equal the inputs of the next");
    }
    template <std::size_t I, class Visitor> void visit_child(Visitor& visitor) {
        auto& child = std::get<I>(layers);
        using child_type = std::tuple_element_t<I, tuple>;
        if constexpr (!detail::is_named<child_type>)
            visit_as(std::to_string(I), child, visitor);
        else if constexpr (child_type::name.empty)
            child.visit(visitor);
        else
            visit_as(child_type::name.text, child, visitor);
    }
    // Whether layer I adds the residual.
    template <std::size_t I, class Addend>
    static constexpr bool adds = I + 1 == depth && !std::is_same_v<Addend, detail::no_rows>;

    template <std::size_t I, class Context, class Addend, class X, class... More>
    void forward_from(Context& ctx, saved_activations& s, Addend const& addend, X const& x, More const&... more) const {
        auto const& layer = std::get<I>(layers);
        auto const forward = [&](auto const&... given) {
            if constexpr (adds<I, Addend>)
                return layer.forward_residual(ctx, addend, given...);
            else
                return layer.forward(ctx, given...);
        };
        if constexpr (detail::goes_forward_with<std::tuple_element_t<I, tuple>, Context, X const, More const...>)
            std::get<I>(s.all) = forward(x, more...);
        else
            std::get<I>(s.all) = forward(x);
        if constexpr (I + 1 < depth) forward_from<I + 1>(ctx, s, addend, std::get<I>(s.all).y, more...);
    }
    template <std::size_t I, class Context, class Addend, class X, class... More>
    auto extend_from(Context& ctx, Addend const& addend, X const& x, More&... more) const {
        auto const& layer = std::get<I>(layers);
        auto const y = [&] {
            if constexpr (detail::extends_with<std::tuple_element_t<I, tuple>, Context, X const, More...>) {
                if constexpr (adds<I, Addend>)
                    return layer.extend_residual(ctx, addend, x, more...);
                else
                    return layer.extend(ctx, x, more...);
            } else if constexpr (adds<I, Addend>)
                return layer.forward_residual(ctx, addend, x).y;
            else
                return layer.forward(ctx, x).y;
        }();
        if constexpr (I + 1 < depth)
            return extend_from<I + 1>(ctx, addend, y, more...);
        else
            return y;
    }
    template <std::size_t I, class Context, class DY, class DX, class... More>
    void backward_from(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        auto& layer = std::get<I>(layers);
        auto const& of_layer = std::get<I>(s.all);
        if constexpr (I == 0 && std::is_same_v<DX, detail::no_rows>)
            layer.backward_parameters(ctx, of_layer, dy);
        else if constexpr (I == 0 && detail::has_residual<DX>)
            layer.backward_residual(ctx, of_layer, dy, dx.dx, dx.addend);
        else if constexpr (I == 0)
            backward_of(layer, ctx, of_layer, dy, dx, more...);
        else {
            constexpr index_t width = std::tuple_element_t<I, tuple>::inputs;
            auto const between = ctx.workspace.template take<scalar>(extents<dyn, width>(dy.extent(0)));
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

// y = x + inner(x). Parameter names are those that `inner` gives.
template <class Layer> struct residual {
    using space_type = space_of<Layer>;
    using scalar = typename space_type::storage;
    static constexpr index_t inputs = Layer::inputs;
    static constexpr index_t outputs = Layer::outputs;
    static_assert(inputs == outputs, "calm::residual: the layer's outputs must equal its inputs");

    Layer inner;  // with equal inputs and outputs

    // FLOPs of the inner layer per row.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return Layer::flops(attended...);
    }

    using saved_activations = typename Layer::saved_activations;  // of the inner layer; its y already includes x

    // y (R, D) of x (R, D).
    template <class Context, class X, class... More>
    saved_activations forward(Context& ctx, X const& x, More const&... more) const {
        if constexpr (detail::adds_residual<Layer>) {
            return inner.forward_residual(ctx, x, x, more...);
        } else {
            saved_activations const s = inner.forward(ctx, x, more...);
            evaluate(ctx, s.y, s.y + x);
            return s;
        }
    }
    // Overwrites dx (R, D) with the gradient for x, given dy (R, D). Parameter gradients accumulate.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        if constexpr (detail::adds_residual_backward<Layer>) {
            inner.backward_residual(ctx, s, dy, dx, dy, more...);
        } else {
            inner.backward(ctx, s, dy, dx, more...);
            evaluate(ctx, dx, dx + dy);
        }
    }
    // As forward, for new rows that follow the cached ones.
    template <class Context, class X, class... More> auto extend(Context& ctx, X const& x, More&... more) const {
        if constexpr (detail::adds_residual<Layer>) {
            return inner.extend_residual(ctx, x, x, more...);
        } else {
            auto const y = inner.extend(ctx, x, more...);
            evaluate(ctx, y, y + x);
            return y;
        }
    }
    template <class Visitor> void visit(Visitor& visitor) { inner.visit(visitor); }
};

}  // namespace calm
