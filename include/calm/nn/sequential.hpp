#pragma once
/// \file
/// Combinators: `sequential` applies layers in sequence, `residual` adds a layer's input to its output.
/// \shows{examples/06_network.cpp}

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

#include "calm/base/detail/tuple.hpp"
#include "calm/nn/layer.hpp"
#include "calm/tensor/core/activations.hpp"
#include "calm/tensor/expr/expr.hpp"

namespace calm {

/// Functions for elementwise_layer.
namespace functions {
/// silu(x).
struct silu {
    template <class X> static auto of(X&& x) { return calm::silu(std::forward<X>(x)); }
};
/// max(x, 0); the derivative at 0 is 0.
struct relu {
    template <class X> static auto of(X&& x) { return maximum(0.0, std::forward<X>(x)); }
};
}  // namespace functions

/// y = Function::of(x), an elementwise expression. Result: how y is stored.
template <class Function, index_t D, class Space = space<>, result_as Result = result_as::numbers>
struct elementwise_layer {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }  ///< no matrix products
    /// Saved activations, in ctx.saved.
    struct saved_activations {
        activations<T const, D, Backend> x;    ///< (R, D)
        result_rows<Result, T, D, Backend> y;  ///< (R, D)
    };
    /// y (R, D) of x (R, D).
    saved_activations forward(context<Backend>& ctx, activations<T const, D, Backend> const& x) const {
        saved_activations const s{x, take_result<Result, T, D>(ctx, ctx.saved, x.extent(0))};
        with_numbers(
            [&](auto const& numbers) {
                with_numbers([&](auto const& y) { evaluate(ctx, y, Function::of(numbers)); }, s.y);
            },
            x);
        return s;
    }
    /// x, dy and dx must have the same storage type.
    void backward(context<Backend>& ctx, saved_activations const& s, activations<T const, D, Backend> const& dy,
                  activations<T, D, Backend> const& dx) {
        with_numbers([&](auto const& x, auto const& grad_output,
                         auto const& to) { differentiate(ctx, Function::of(wrt(x, to)), grad_output); },
                     s.x, dy, dx);
    }
    template <class Visitor> void visit(Visitor&) {}
};

/// y = silu(x).
template <index_t D, class Space = space<>, result_as Result = result_as::numbers>
using silu_layer = elementwise_layer<functions::silu, D, Space, Result>;
/// y = max(x, 0).
template <index_t D, class Space = space<>, result_as Result = result_as::numbers>
using relu_layer = elementwise_layer<functions::relu, D, Space, Result>;

/// The name of a child layer, as a template argument.
template <std::size_t N> struct child_name {
    char text[N]{};  ///< zero-terminated
    /// From a string literal.
    constexpr child_name(char const (&literal)[N]) {  // NOLINT(google-explicit-constructor): it is one
        for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
    }
    static constexpr bool empty = N == 1;  ///< whether the name is ""
};

/// A child of `sequential` with an explicit name: its parameters are "Name.weight" etc., or unprefixed if Name is "".
template <child_name Name, class Layer> struct named : Layer {
    static constexpr auto name = Name;  ///< without the dot
};

namespace detail {
template <class Layer> inline constexpr bool is_named = false;
template <child_name Name, class Layer> inline constexpr bool is_named<named<Name, Layer>> = true;

template <class Layer, class Context, class X, class... More>
concept extends_with = requires(Layer const& layer, Context& ctx, X const& x, More&... more) {
    layer.extend(ctx, x, more...);
};

// Decoding: the layer's extend. A layer without one runs forward, which takes no extra arguments but an addend.
template <class Layer, class Context, class X, class... More>
auto extended(Layer const& layer, Context& ctx, X const& x, More&... more) -> decltype(layer.extend(ctx, x, more...)) {
    return layer.extend(ctx, x, more...);
}
template <class Layer, class Context, class X, class... Addend>
requires((is_addend<std::remove_const_t<Addend>> && ...) &&
         !extends_with<Layer, Context, X, Addend...>) auto extended(Layer const& layer, Context& ctx, X const& x,
                                                                    Addend&... residual)
    -> decltype(layer.forward(ctx, x, residual...).y) {
    return layer.forward(ctx, x, residual...).y;
}

// Memory in ctx.workspace for the gradient of a layer's result y, which is stored as y is.
template <class Backend, class T, index_t Columns>
auto room_like(context<Backend>& ctx, matrix_view<T, Columns, Backend> const& y) {
    return ctx.workspace.template take<T>(y.extents());
}
template <class Backend, class T, index_t Columns>
auto room_like(context<Backend>& ctx, device_activations<T, Columns, Backend> const& y) {
    return take_activations<T, Columns>(ctx, ctx.workspace, y.extent(0));
}

// Whether a layer has a given name. Resolved by overloads, because nvcc 13.0 miscompares names in constant expressions.
template <child_name Name> struct called {
    template <class Layer> static std::true_type so(named<Name, Layer> const*);
    static std::false_type so(void const*);
};
template <child_name Name, class Layer>
inline constexpr bool is_called = decltype(called<Name>::so(static_cast<Layer const*>(nullptr)))::value;
}  // namespace detail

/// Layers in sequence, each as wide as the previous one's output. Children are named by index, "0", "1", ..., or by
/// `named`. Extra arguments of forward, backward and extend reach the layers that accept them.
template <class... Layers> struct sequential {
    static constexpr std::size_t depth = sizeof...(Layers);  ///< how many layers
    using tuple = detail::tuple<Layers...>;                  ///< their storage
    using first = detail::tuple_element_t<0, tuple>;         ///< takes x
    using last = detail::tuple_element_t<depth - 1, tuple>;  ///< returns y
    using space_type = space_of<first>;
    using scalar = typename space_type::scalar;
    static constexpr index_t inputs = first::inputs;
    static constexpr index_t outputs = last::outputs;

    tuple layers;  ///< in the order of forward

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        detail::tuple<typename Layers::saved_activations...> all;        ///< one per layer
        decltype(std::declval<typename last::saved_activations>().y) y;  ///< (R, outputs)
    };

    /// FLOPs of the matrix products per row; see nn/layer.hpp.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return (Layers::flops(attended...) + ...);
    }

    template <std::size_t I> auto& layer() { return detail::get<I>(layers); }              ///< layer I, from 0
    template <std::size_t I> auto const& layer() const { return detail::get<I>(layers); }  ///< layer I, from 0
    template <child_name Name> auto& child() { return layer<place_of<Name>()>(); }         ///< the child of that name

    static constexpr bool adds_residual = detail::adds_residual<last>;  ///< whether forward and extend take an addend
    static constexpr bool adds_residual_backward = detail::adds_residual_backward<first>;  ///< whether backward does

    /// y (R, outputs) of x (R, inputs). `more`: extra arguments, then perhaps an addend, which goes to the last layer.
    template <class Context, class X, class... More>
    saved_activations forward(Context& ctx, X const& x, More const&... more) const {
        check_sizes(std::make_index_sequence<depth - 1>{});
        saved_activations s{};
        forward_from<0>(ctx, s, x, more...);
        s.y = detail::get<depth - 1>(s.all).y;
        return s;
    }

    /// Overwrites dx (R, inputs) with the gradient for x, given dy (R, outputs); dx may be no_gradient. Parameter
    /// gradients accumulate. Consumes s. `more`: extra arguments, then perhaps an addend, which goes to the first
    /// layer.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        arena_scope const scope(ctx.workspace);
        backward_from<depth - 1>(ctx, s, dy, dx, more...);
    }

    /// Forward for new rows that follow the cached ones: layers with `extend` extend, the others run forward.
    template <class Context, class X, class... More> auto extend(Context& ctx, X const& x, More&... more) const {
        return extend_from<0>(ctx, x, more...);
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
        static_assert(
            ((detail::tuple_element_t<I, tuple>::outputs == detail::tuple_element_t<I + 1, tuple>::inputs) && ...),
            "calm::sequential: the outputs of a layer must equal the inputs of the next");
    }
    template <std::size_t I, class Visitor> void visit_child(Visitor& visitor) {
        auto& child = detail::get<I>(layers);
        using child_type = detail::tuple_element_t<I, tuple>;
        if constexpr (!detail::is_named<child_type>)
            visit_as(std::to_string(I), child, visitor);
        else if constexpr (child_type::name.empty)
            child.visit(visitor);
        else
            visit_as(child_type::name.text, child, visitor);
    }
    template <std::size_t I, class Context, class X, class... More>
    void forward_from(Context& ctx, saved_activations& s, X const& x, More const&... more) const {
        auto const& layer = detail::get<I>(layers);
        detail::get<I>(s.all) = detail::with_extra_arguments<I + 1 == depth>(
            [&](auto const&... given) -> decltype(layer.forward(ctx, x, given...)) {
                return layer.forward(ctx, x, given...);
            },
            more...);
        if constexpr (I + 1 < depth) forward_from<I + 1>(ctx, s, detail::get<I>(s.all).y, more...);
    }
    template <std::size_t I, class Context, class X, class... More>
    auto extend_from(Context& ctx, X const& x, More&... more) const {
        auto const& layer = detail::get<I>(layers);
        auto const y = detail::with_extra_arguments<I + 1 == depth>(
            [&](auto&... given) -> decltype(detail::extended(layer, ctx, x, given...)) {
                return detail::extended(layer, ctx, x, given...);
            },
            more...);
        if constexpr (I + 1 < depth)
            return extend_from<I + 1>(ctx, y, more...);
        else
            return y;
    }
    template <std::size_t I, class Context, class DY, class DX, class... More>
    void backward_from(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        auto& layer = detail::get<I>(layers);
        auto const& of_layer = detail::get<I>(s.all);
        auto const backward_to = [&](auto const& to) {
            detail::with_extra_arguments<I == 0>(
                [&](auto const&... given) -> decltype(layer.backward(ctx, of_layer, dy, to, given...)) {
                    layer.backward(ctx, of_layer, dy, to, given...);
                },
                more...);
        };
        if constexpr (I == 0) {
            backward_to(dx);
        } else {
            auto const between = detail::room_like(ctx, detail::get<I - 1>(s.all).y);
            backward_to(between);
            backward_from<I - 1>(ctx, s, between, dx, more...);
        }
    }
};

/// y = x + inner(x). Parameter names are those that `inner` gives.
template <class Layer> struct residual {
    using space_type = space_of<Layer>;
    using scalar = typename space_type::scalar;
    static constexpr index_t inputs = Layer::inputs;
    static constexpr index_t outputs = Layer::outputs;
    static_assert(inputs == outputs, "calm::residual: the layer's outputs must equal its inputs");

    Layer inner;  ///< with equal inputs and outputs

    /// FLOPs of the inner layer per row.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return Layer::flops(attended...);
    }

    using saved_activations = typename Layer::saved_activations;  ///< of the inner layer; its y already includes x

    /// y (R, D) of x (R, D).
    template <class Context, class X, class... More>
    saved_activations forward(Context& ctx, X const& x, More const&... more) const {
        if constexpr (detail::adds_residual<Layer>) {
            return inner.forward(ctx, x, more..., rows_to_add{x});
        } else {
            saved_activations const s = inner.forward(ctx, x, more...);
            evaluate(ctx, s.y, s.y + x);
            return s;
        }
    }
    /// Overwrites dx (R, D) with the gradient for x, given dy (R, D). Parameter gradients accumulate.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        if constexpr (detail::adds_residual_backward<Layer>) {
            inner.backward(ctx, s, dy, dx, more..., rows_to_add{dy});
        } else {
            inner.backward(ctx, s, dy, dx, more...);
            evaluate(ctx, dx, dx + dy);
        }
    }
    /// As forward, for new rows that follow the cached ones.
    template <class Context, class X, class... More> auto extend(Context& ctx, X const& x, More&... more) const {
        if constexpr (detail::adds_residual<Layer>) {
            rows_to_add const rows{x};
            return inner.extend(ctx, x, more..., rows);
        } else {
            auto const y = inner.extend(ctx, x, more...);
            evaluate(ctx, y, y + x);
            return y;
        }
    }
    template <class Visitor> void visit(Visitor& visitor) { inner.visit(visitor); }

private:
    using rows_to_add = addend<scalar, inputs, typename space_type::backend>;
};

}  // namespace calm
