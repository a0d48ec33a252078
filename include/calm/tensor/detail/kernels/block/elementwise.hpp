#pragma once
// Element-wise trees as portable block kernels: evaluation, differentiation, sums.

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/detail/expr/tree.hpp"

namespace calm::detail {

// What a thread computes at a time: 16 bytes of memory, in elements stored as Stored.
template <class Stored> using computed_group = group<computed_in<Stored>, 16 / static_cast<int>(sizeof(Stored))>;

// A phase that calls f<V>(i) for the elements below n of a block's range: one group per thread, the remainder one by
// one.
inline constexpr int element_threads = 256;
template <class Group, class Block, class F> CALM_HD void for_elements(Block& b, index_t block, index_t n, F const& f) {
    constexpr index_t per_block = lanes<Group> * element_threads;
    b.phase(
        [&](int t) { for_groups_of<Block, Group>(t, block * per_block, math::min(n, (block + 1) * per_block), f); });
}
// Number of blocks for n elements.
template <class Group> CALM_HD constexpr index_t element_blocks(index_t n) {
    return blocks_for(n, lanes<Group> * element_threads);
}

template <class Tree, class T> struct evaluate_kernel {
    static constexpr int threads = element_threads;
    struct shared {};
    Tree tree;
    T* y;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        for_elements<computed_group<T>>(b, block, n,
                                        [&]<class V>(index_t i) { store(y + i, tree.template forward<V>(i).value); });
    }
};

// The incoming gradient of a whole tree: a tensor, or one value for all elements.
template <class T> struct tensor_cotangent {
    using stored = T;
    T const* dy;
    template <class V> [[gnu::always_inline]] CALM_HD V at(index_t i) const { return load<V>(dy + i); }
};
template <class T> struct constant_cotangent {
    using stored = T;
    T dy;
    template <class V> [[gnu::always_inline]] CALM_HD V at(index_t) const { return splat<V>(dy); }
};

template <class Tree, class DY> struct differentiate_kernel {
    static constexpr int threads = element_threads;
    struct shared {};
    Tree tree;
    DY dy;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        for_elements<computed_group<typename DY::stored>>(b, block, n, [&]<class V>(index_t i) {
            tree.template backward<V>(tree.template forward<V>(i), i, dy.template at<V>(i));
        });
    }
};

// Where the sum of a block's chunk goes: to sums[block], or, as a final sum, onto a scalar total.
template <class Wide> struct put_sum {
    Wide* sums;
    CALM_HD void operator()(index_t block, Wide sum) const { sums[block] = sum; }
};
struct add_to_total {
    double* total;
    double factor;
    template <class Wide> CALM_HD void operator()(index_t, Wide sum) const {
        *total += factor * static_cast<double>(sum);
    }
};

// put(block, the sum of the tree over the block's chunk of elements).
template <class Tree, class Wide, class Put = put_sum<Wide>> struct sum_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Tree tree;
    Put put;
    index_t n;
    index_t chunk;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        Wide const total = sum_terms(b, block * chunk, math::min(n, (block + 1) * chunk), [&](index_t i) {
            return static_cast<Wide>(tree.template forward<typename Tree::scalar>(i).value);
        });
        b.phase([&](int t) {
            if (t == 0) put(block, total);
        });
    }
};

template <block_backend Backend, class Tree, class T>
void run_evaluate(context<Backend> const& ctx, Tree const& tree, T* y, index_t n) {
    launch(ctx, element_blocks<computed_group<T>>(n), evaluate_kernel<Tree, T>{tree, y, n});
}

template <block_backend Backend, class Tree, class DY>
void run_differentiate(context<Backend> const& ctx, Tree const& tree, DY const& dy, index_t n) {
    launch(ctx, element_blocks<computed_group<typename DY::stored>>(n), differentiate_kernel<Tree, DY>{tree, dy, n});
}

// put(0, the sum), run by the backend: sums of chunks first, then their sum.
template <block_backend Backend, class Tree, class Put>
void run_sum_to(context<Backend>& ctx, Tree const& tree, index_t n, Put const& put) {
    using wide = typename accumulator<typename Tree::scalar>::type;
    constexpr index_t chunk = 4096;
    arena_scope const scope(ctx.workspace);
    index_t const chunks = blocks_for(n, chunk);
    auto const sums = ctx.workspace.template take<wide>(extents<dyn>(chunks));
    if (chunks > 1) {
        launch(ctx, chunks, sum_kernel<Tree, wide>{tree, {sums.data()}, n, chunk});
        launch(ctx, 1, sum_kernel<tree::input<wide>, wide, Put>{{sums.data()}, put, chunks, chunks});
    } else {
        launch(ctx, 1, sum_kernel<Tree, wide, Put>{tree, put, n, chunk});
    }
}
template <block_backend Backend, class Tree> auto run_sum(context<Backend>& ctx, Tree const& tree, index_t n) {
    using wide = typename accumulator<typename Tree::scalar>::type;
    arena_scope const scope(ctx.workspace);
    auto const total = ctx.workspace.template take<wide>(extents<1>());
    run_sum_to(ctx, tree, n, put_sum<wide>{total.data()});
    return copy_to_host(ctx, total.data());
}
// *total += factor * the sum of the tree.
template <block_backend Backend, class Tree>
void run_add_sum(context<Backend>& ctx, double* total, Tree const& tree, index_t n, double factor) {
    run_sum_to(ctx, tree, n, add_to_total{total, factor});
}

}  // namespace calm::detail
