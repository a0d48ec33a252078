#pragma once
// Element-wise trees on the cpu: forward into y, backward from dy, or summed. For block backends see
// detail/kernels/block/elementwise.hpp.

#include "calm/tensor/detail/kernels/block/elementwise.hpp"

namespace calm::detail {

inline constexpr index_t elementwise_grain = 16384;  // elements per task

// The real part, which comparisons and losses use.
template <class T> double real_part(T x) {
    if constexpr (requires { x.real(); })
        return x.real();
    else
        return static_cast<double>(x);
}

// Calls f<V>(i) for the elements of [begin, end) that fill packets, then f<T>(i) for the rest.
template <class V, class T, class F>
[[gnu::always_inline]] CALM_HD inline void for_lanes(index_t begin, index_t end, F const& f) {
    index_t i = begin;
    if constexpr (!std::is_same_v<V, T>) {
        index_t const whole = begin + (end - begin) / lanes<packet<T>> * lanes<packet<T>>;
        for (; i < whole; i += lanes<V>) f.template operator()<V>(i);
    }
    for (; i < end; ++i) f.template operator()<T>(i);
}

// for_lanes with packets.
template <class T, class F>
[[gnu::always_inline]] CALM_HD inline void for_packets(index_t begin, index_t end, F const& f) {
    for_lanes<packet<T>, T>(begin, end, f);
}

// for_lanes with native vectors, for loops without sums.
template <class T, class F>
[[gnu::always_inline]] CALM_HD inline void for_pieces(index_t begin, index_t end, F const& f) {
    for_lanes<piece_of_packet<T>, T>(begin, end, f);
}

// An element has the same bits wherever the range ends: the last vector overlaps the one before it, because the scalar
// functions round differently. It is computed first, for y may be an operand. Only a range shorter than a vector is
// computed by scalars.
template <class Tree, class T> void serial_evaluate(Tree const& tree, T* y, index_t begin, index_t end) {
    using V = piece_of_packet<T>;
    index_t const last = end - lanes<V>;
    if (last < begin || lanes<V> == 1) {
        for (index_t i = begin; i < end; ++i) store(y + i, tree.template forward<T>(i).value);
        return;
    }
    V const at_end = tree.template forward<V>(last).value;
    for (index_t i = begin; i < last; i += lanes<V>) store(y + i, tree.template forward<V>(i).value);
    store(y + last, at_end);
}

template <class Tree, class T> void run_evaluate(context<cpu> const& ctx, Tree const& tree, T* y, index_t n) {
    constexpr index_t each = lanes<packet<T>>;
    index_t const packets = std::max<index_t>(1, n / each);  // the last range takes the rest, too
    ctx.parallel_ranges(packets, elementwise_grain / each, [&](index_t begin, index_t end) {
        serial_evaluate(tree, y, begin * each, end == packets ? n : end * each);
    });
}

template <class Tree, class DY>
void run_differentiate(context<cpu> const& ctx, Tree const& tree, DY const& dy, index_t n) {
    ctx.parallel_ranges(n, elementwise_grain, [&](index_t begin, index_t end) {
        for_pieces<typename Tree::scalar>(begin, end, [&]<class V>(index_t i) {
            tree.template backward<V>(tree.template forward<V>(i), i, dy.template at<V>(i));
        });
    });
}

// A packet that accumulates native vectors.
template <class T> struct packet_sum {
    static constexpr index_t count = lanes<packet<T>> / lanes<piece_of_packet<T>>;
    piece_of_packet<T> pieces[count]{};

    // Adds to the lanes of element i.
    [[gnu::always_inline]] void add(index_t i, piece_of_packet<T> v) { pieces[i / lanes<decltype(v)> % count] += v; }
    [[gnu::always_inline]] packet<T> value() const { return std::bit_cast<packet<T>>(pieces); }
};

// The sum over [begin, end) in a fixed order; float lanes go to a double total before they lose digits.
template <class Tree> auto serial_sum(Tree const& tree, index_t begin, index_t end) {
    using T = typename Tree::scalar;
    using V = packet<T>;
    using wide = typename accumulator<T>::type;
    wide total{};
    for (; begin < end; begin += 256) {
        packet_sum<T> packets;
        for_pieces<T>(begin, std::min(end, begin + 256), [&, first = begin]<class W>(index_t i) {
            if constexpr (std::is_same_v<W, T>)
                total += static_cast<wide>(tree.template forward<T>(i).value);
            else
                packets.add(i - first, tree.template forward<W>(i).value);
        });
        if constexpr (!std::is_same_v<V, T>) total += static_cast<wide>(sum(packets.value()));
    }
    return total;
}

// Sums chunks of fixed size, then the chunk sums, so the result does not depend on the threads.
template <class Tree> auto run_sum(context<cpu>& ctx, Tree const& tree, index_t n) {
    using wide = typename accumulator<typename Tree::scalar>::type;
    constexpr index_t chunk = 4096;
    arena_scope const scope(ctx.workspace);
    auto const partial = ctx.workspace.template take<wide>(extents<dyn>((n + chunk - 1) / chunk));
    ctx.parallel((n + chunk - 1) / chunk,
                 [&](index_t c) { partial[c] = serial_sum(tree, c * chunk, std::min(n, (c + 1) * chunk)); });
    wide total{};
    if (!ctx.is_dry_run())
        for (wide const p : partial) total += p;
    return total;
}

// *total += factor * the sum
template <class Tree> void run_add_sum(context<cpu>& ctx, double* total, Tree const& tree, index_t n, double factor) {
    auto const sum = run_sum(ctx, tree, n);
    if (!ctx.is_dry_run()) *total += factor * real_part(sum);
}

}  // namespace calm::detail
