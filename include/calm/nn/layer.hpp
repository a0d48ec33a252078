#pragma once
/// \file
/// What layers have in common. A layer is any type with the sizes `inputs` and `outputs`, and with
/// - `saved_activations forward(ctx, x) const`: from rows x (R, inputs) to rows saved.y (R, outputs), in ctx.saved. It
///   may keep a view of x, which must live until backward
/// - `void backward(ctx, saved, dy, dx)`: overwrites dx (R, inputs), accumulates parameter gradients. It may consume
///   saved, but never reads saved.y and never changes dy (R, outputs). dx must not overlap dy: a residual reads dy
///   afterwards
/// - `void visit(visitor)`: names its parameters
///
/// Optional are
/// - `auto extend(ctx, x, ...) const`: forward in decoding: for new rows that follow cached ones, or without saving;
///   returns y
/// - `static constexpr double flops(double attended)`: FLOPs of its matrix products per row (forward); attended: mean
///   number of positions attended to
/// - `static constexpr bool adds_residual = true`: forward and extend take an addend as last argument
/// - `static constexpr bool adds_residual_backward = true`: backward takes an addend as last argument
/// - `void backward(ctx, saved, dy, no_gradient)`: accumulates parameter gradients only
///
/// docs/extending.md shows how to write one.
/// \shows{tests/nn/linear_test.cpp,only_the_parameters}

#include <optional>
#include <tuple>
#include <type_traits>

#include "calm/nn/param.hpp"

namespace calm {

/// Rows (R, Columns) that a layer adds to its result, or nothing. They are only read.
template <class T, index_t Columns, class Backend = cpu> struct addend {
    std::optional<matrix_view<T const, Columns, Backend>> rows = {};  ///< without a value: nothing to add
};

/// In the place of dx: the gradient of the input is not wanted.
struct no_gradient {};

namespace detail {

template <class Layer> inline constexpr bool adds_residual = false;
template <class Layer>
requires requires {
    Layer::adds_residual;
}
inline constexpr bool adds_residual<Layer> = Layer::adds_residual;

template <class Layer> inline constexpr bool adds_residual_backward = false;
template <class Layer>
requires requires {
    Layer::adds_residual_backward;
}
inline constexpr bool adds_residual_backward<Layer> = Layer::adds_residual_backward;

template <class X> inline constexpr bool is_addend = false;
template <class T, index_t Columns, class Backend> inline constexpr bool is_addend<addend<T, Columns, Backend>> = true;

// Calls f with the extra arguments if it takes them, otherwise without them. An addend, which is the last argument, is
// passed in both cases, but only if Adds. The first two overloads save compiling a tuple.
template <bool Adds, class F> auto with_extra_arguments(F const& f) {
    return f();
}
template <bool Adds, class F, class Only>
requires is_addend<std::remove_const_t<Only>>
auto with_extra_arguments(F const& f, Only& only) {
    if constexpr (Adds)
        return f(only);
    else
        return f();
}
template <bool Adds, class F, class... More> auto with_extra_arguments(F const& f, More&... more) {
    constexpr std::size_t addends = (std::size_t{is_addend<std::remove_const_t<More>>} + ... + 0);
    constexpr std::size_t extras = sizeof...(More) - addends;
    auto const all = std::tie(more...);
    return [&]<std::size_t... Extra, std::size_t... Plus>(std::index_sequence<Extra...>, std::index_sequence<Plus...>) {
        if constexpr (std::is_invocable_v<F const&, decltype(std::get<Extra>(all))...,
                                          decltype(std::get<extras + Plus>(all))...>)
            return f(std::get<Extra>(all)..., std::get<extras + Plus>(all)...);
        else
            return f(std::get<extras + Plus>(all)...);
    }
    (std::make_index_sequence<extras>{}, std::make_index_sequence < Adds ? addends : 0 > {});
}

}  // namespace detail

}  // namespace calm
