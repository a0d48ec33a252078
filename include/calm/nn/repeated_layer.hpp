#pragma once
/// \file
/// One layer type repeated N times in sequence.
/// \shows{tests/nn/repeated_layer_test.cpp,layers_are_numbered_from_the_first}

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "calm/nn/param.hpp"

namespace calm {

/// N >= 1 layers that map rows (R, D) to rows (R, D), named by number: First, First + 1, ... `more` holds extra
/// arguments, which every layer gets.
template <class Layer, std::size_t N, std::size_t First = 0> struct repeated_layer {
    static_assert(N > 0, "calm::repeated_layer: expected at least one layer");
    using space_type = space_of<Layer>;
    using scalar = typename space_type::scalar;
    static constexpr std::size_t depth = N;  ///< number of layers
    static constexpr index_t inputs = Layer::inputs;
    static constexpr index_t outputs = Layer::outputs;
    static_assert(inputs == outputs, "calm::repeated_layer: the layer's outputs must equal its inputs");

    std::array<Layer, N> layers;  ///< in the order of forward

    /// FLOPs of the products per row; attention takes the mean number of positions attended to.
    template <class... Attended> static constexpr double flops(Attended... attended) {
        return static_cast<double>(N) * Layer::flops(attended...);
    }

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        std::array<typename Layer::saved_activations, N> layers;                 ///< one per layer
        decltype(std::declval<typename Layer::saved_activations const&>().y) y;  ///< (R, D), output of the last layer
    };

    /// y (R, D) of x (R, D).
    template <class Context, class X, class... More>
    saved_activations forward(Context& ctx, X const& x, More const&... more) const {
        saved_activations s{};
        s.y = (s.layers[0] = layers[0].forward(ctx, x, more...)).y;
        for (std::size_t i = 1; i < N; ++i) s.y = (s.layers[i] = layers[i].forward(ctx, s.y, more...)).y;
        return s;
    }

    /// Overwrites dx (R, D) with the gradient for x, given dy (R, D). Parameter gradients accumulate. Consumes s.
    template <class Context, class DY, class DX, class... More>
    void backward(Context& ctx, saved_activations const& s, DY const& dy, DX const& dx, More const&... more) {
        if constexpr (N == 1) return layers[0].backward(ctx, s.layers[0], dy, dx, more...);
        arena_scope const scope(ctx.workspace);
        DX const other = ctx.workspace.template take<scalar>(dx.extents());
        auto const of = [&](std::size_t i) { return i % 2 == 0 ? dx : other; };  // gradient at the input of layer i
        layers[N - 1].backward(ctx, s.layers[N - 1], dy, of(N - 1), more...);
        for (std::size_t i = N - 1; i-- > 0;) layers[i].backward(ctx, s.layers[i], of(i + 1), of(i), more...);
    }

    /// As forward, for new rows that follow the cached ones; one cache per layer.
    template <class Context, class X, class Caches, class... More>
    auto extend(Context& ctx, X const& x, Caches& caches, More const&... more) const {
        auto y = layers[0].extend(ctx, x, caches[0], more...);
        for (std::size_t i = 1; i < N; ++i) y = layers[i].extend(ctx, y, caches[i], more...);
        return y;
    }

    template <class Visitor> void visit(Visitor& visitor) {
        for (std::size_t i = 0; i < N; ++i) visit_as(std::to_string(First + i), layers[i], visitor);
    }
};

}  // namespace calm
