#pragma once
// How an executor runs a tree over n elements: forward into y, backward from dy, or summed.

#include "calm/tensor/kernel.hpp"
#include "calm/tensor/tree.hpp"

namespace calm::detail {

inline constexpr index_t elementwise_grain = 16384;  // elements a task

// f(i, V) for the elements of [begin, end): packets first, then scalars.
template <class T, class F> void for_packets(index_t begin, index_t end, F const& f) {
    using V = packet<T>;
    index_t i = begin;
    if constexpr (!std::is_same_v<V, T>) {
        constexpr index_t width = lanes<V>;
        index_t const whole = begin + (end - begin) / width * width;
        for (; i < whole; i += width) f.template operator()<V>(i);
    }
    for (; i < end; ++i) f.template operator()<T>(i);
}

template <class Tree, class T> void serial_evaluate(Tree const& tree, T* y, index_t begin, index_t end) {
    for_packets<T>(begin, end, [&]<class V>(index_t i) { store(y + i, tree.template forward<V>(i).value); });
}

template <class Tree, class T> void run_evaluate(context<cpu> const& ctx, Tree const& tree, T* y, index_t n) {
    ctx.parallel_ranges(n, elementwise_grain,
                        [&](index_t begin, index_t end) { serial_evaluate(tree, y, begin, end); });
}

template <class Tree, class T>
void run_differentiate(context<cpu> const& ctx, Tree const& tree, T const* dy, index_t n) {
    ctx.parallel_ranges(n, elementwise_grain, [&](index_t begin, index_t end) {
        for_packets<T>(begin, end, [&]<class V>(index_t i) {
            tree.template backward<V>(tree.template forward<V>(i), i, load<V>(dy + i));
        });
    });
}

// The gradient of scale * sum(tree).
template <class Tree, class T>
void run_differentiate_sum(context<cpu> const& ctx, Tree const& tree, T scale, index_t n) {
    ctx.parallel_ranges(n, elementwise_grain, [&](index_t begin, index_t end) {
        for_packets<T>(begin, end, [&]<class V>(index_t i) {
            tree.template backward<V>(tree.template forward<V>(i), i, splat<V>(scale));
        });
    });
}

// ---- the same in portable block form

template <class Tree, class T> struct evaluate_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Tree tree;
    T* y;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i < n) y[i] = tree.template forward<T>(i).value;
        });
    }
};

// dy is a tensor, or (null) the constant `scale`.
template <class Tree, class T> struct differentiate_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Tree tree;
    T const* dy;
    T scale;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i < n) tree.template backward<T>(tree.template forward<T>(i), i, dy != nullptr ? dy[i] : scale);
        });
    }
};

template <class Tree, class T> void run_evaluate(context<emulated> const& ctx, Tree const& tree, T* y, index_t n) {
    launch(ctx, (n + 255) / 256, evaluate_kernel<Tree, T>{tree, y, n});
}
template <class Tree, class T>
void run_differentiate(context<emulated> const& ctx, Tree const& tree, T const* dy, index_t n) {
    launch(ctx, (n + 255) / 256, differentiate_kernel<Tree, T>{tree, dy, T{}, n});
}
template <class Tree, class T>
void run_differentiate_sum(context<emulated> const& ctx, Tree const& tree, T scale, index_t n) {
    launch(ctx, (n + 255) / 256, differentiate_kernel<Tree, T>{tree, nullptr, scale, n});
}

// Sums in chunks of fixed size, each in a fixed order, then over the chunks: the threads change nothing.
template <class T> struct accumulator { using type = T; };
template <> struct accumulator<float> { using type = double; };

template <class Backend, class Tree> auto run_sum(context<Backend>& ctx, Tree const& tree, index_t n) {
    using T = typename Tree::scalar;
    using wide = typename accumulator<T>::type;
    constexpr index_t chunk = 4096;
    arena_scope const scope(ctx.scratch);
    auto const partial = ctx.scratch.template take<wide>(extents<dyn>((n + chunk - 1) / chunk));
    ctx.parallel((n + chunk - 1) / chunk, [&](index_t c) {
        using V = packet<T>;
        index_t const end = std::min(n, (c + 1) * chunk);
        wide total{};
        for (index_t begin = c * chunk; begin < end; begin += 256) {  // lanes are added up before they lose digits
            V packets{};
            for_packets<T>(begin, std::min(end, begin + 256), [&]<class W>(index_t i) {
                if constexpr (std::is_same_v<W, T>)
                    total += static_cast<wide>(tree.template forward<T>(i).value);
                else
                    packets += tree.template forward<W>(i).value;
            });
            if constexpr (!std::is_same_v<V, T>) total += static_cast<wide>(sum(packets));
        }
        partial[c] = total;
    });
    wide total{};
    if (!ctx.rehearsing())
        for (wide const p : partial) total += p;
    return total;
}

}  // namespace calm::detail
