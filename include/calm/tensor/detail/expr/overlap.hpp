#pragma once
// Memory that the tensors of an expression share. Sharing index by index is legal; any other overlap is refused.

#include <cstdint>
#include <span>

#include "calm/tensor/detail/expr/tree.hpp"

namespace calm::detail {

// The memory footprint of a tensor in an expression.
struct touched {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    tree::span shape{};
    tree::written how = tree::written::never;

    touched() = default;
    template <class T>
    explicit touched(tree::leaf<T> const& leaf) :
        begin(reinterpret_cast<std::uintptr_t>(leaf.data)),
        end(begin + static_cast<std::uintptr_t>(leaf.shape.size()) * sizeof(T)), shape(leaf.shape), how(leaf.how) {}
    // Empty tensors may share an address.
    [[nodiscard]] bool apart_from(touched const& other) const {
        return begin == end || other.begin == other.end || end <= other.begin || other.end <= begin;
    }
    [[nodiscard]] bool same_as(touched const& other) const {
        return begin == other.begin && end == other.end && shape == other.shape;
    }
};

// Checks that y may be written from an expression of these leaves. Later leaves may read what earlier ones write.
[[gnu::noinline]] inline void check_destination(touched const& y, std::span<touched const> leaves) {
    constexpr char const* sentence =
        "calm: the destination overlaps an operand at another index: expected the same memory or separate memory; "
        "write into another tensor and copy";
    for (auto const& x : leaves) {
        require(y.apart_from(x) || y.same_as(x), errc::usage, sentence);
        if (x.how != tree::written::by_values) continue;
        require(y.apart_from(x), errc::usage, sentence);
        for (auto const& other : leaves)
            require(x.apart_from(other) || (&x <= &other && x.same_as(other)), errc::usage, sentence);
    }
}

// Checks that the gradients of these leaves may be written from dy. They may share memory with each other only if the
// later one accumulates, and with operands index by index.
[[gnu::noinline]] inline void check_gradients(touched const& dy, std::span<touched const> leaves) {
    for (auto const& dx : leaves) {
        require(dx.how != tree::written::by_values, errc::usage,
                "calm::tee: only evaluate writes values on the way, found it in an expression to differentiate: read "
                "them from there");
        if (dx.how != tree::written::by_gradients && dx.how != tree::written::adding_gradients) continue;
        auto const shares = [&](touched const& x) { return dx.apart_from(x) || dx.same_as(x); };
        bool good = shares(dy);
        for (auto const& x : leaves) good = good && (&x == &dx || shares(x));
        require(good, errc::usage,
                "calm::differentiate: a gradient overlaps an operand, the cotangent or another gradient at another "
                "index: expected the same memory or separate memory; write into another tensor and copy");
        for (auto const& x : leaves.first(static_cast<std::size_t>(&dx - leaves.data())))
            require(x.how == tree::written::never || dx.how == tree::written::adding_gradients || dx.apart_from(x),
                    errc::usage,
                    "calm::differentiate: two gradients go to the same tensor and the second would overwrite the "
                    "first; use accumulate(x, dx) for it");
    }
}

}  // namespace calm::detail
