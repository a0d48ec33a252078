#pragma once
// Trees in portable block form: evaluated, differentiated, summed.

#include "calm/tensor/kernel.hpp"
#include "calm/tensor/tree.hpp"

namespace calm::detail {

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

// The gradient of a whole tree: a tensor's elements, or one number everywhere.
template <class T> struct tensor_cotangent {
    T const* dy;
    template <class V> [[gnu::always_inline]] CALM_HD V at(index_t i) const { return load<V>(dy + i); }
};
template <class T> struct constant_cotangent {
    T dy;
    template <class V> [[gnu::always_inline]] CALM_HD V at(index_t) const { return splat<V>(dy); }
};

template <class Tree, class DY> struct differentiate_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Tree tree;
    DY dy;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        using T = typename Tree::scalar;
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i < n) tree.template backward<T>(tree.template forward<T>(i), i, dy.template at<T>(i));
        });
    }
};

// sums[block] = the sum of the tree over the elements of a chunk.
template <class Tree, class Wide> struct sum_kernel {
    static constexpr int threads = 256;
    struct shared {
        Wide partial[threads];
    };
    Tree tree;
    Wide* sums;
    index_t n;
    index_t chunk;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        sum_terms<threads>(b, s.partial, block * chunk, math::min(n, (block + 1) * chunk), [&](index_t i) {
            return static_cast<Wide>(tree.template forward<typename Tree::scalar>(i).value);
        });
        b.phase([&](int t) {
            if (t == 0) sums[block] = s.partial[0];
        });
    }
};

template <block_executor Backend, class Tree, class T>
void run_evaluate(context<Backend> const& ctx, Tree const& tree, T* y, index_t n) {
    launch(ctx, blocks_for(n, 256), evaluate_kernel<Tree, T>{tree, y, n});
}

template <block_executor Backend, class Tree, class DY>
void run_differentiate(context<Backend> const& ctx, Tree const& tree, DY const& dy, index_t n) {
    launch(ctx, blocks_for(n, 256), differentiate_kernel<Tree, DY>{tree, dy, n});
}

template <block_executor Backend, class Tree> auto run_sum(context<Backend>& ctx, Tree const& tree, index_t n) {
    using wide = typename accumulator<typename Tree::scalar>::type;
    constexpr index_t chunk = 4096;
    arena_scope const scope(ctx.scratch);
    index_t const chunks = blocks_for(n, chunk);
    auto const sums = ctx.scratch.template take<wide>(extents<dyn>(1 + chunks));  // the total, the chunks'
    launch(ctx, chunks, sum_kernel<Tree, wide>{tree, sums.data() + 1, n, chunk});
    launch(ctx, 1, sum_kernel<tree::input<wide>, wide>{{sums.data() + 1}, sums.data(), chunks, chunks});
    return fetch(ctx, sums.data());
}

}  // namespace calm::detail
