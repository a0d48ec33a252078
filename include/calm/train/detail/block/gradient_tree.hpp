#pragma once
// Sets aside and adds gradients of micro-batches, as portable block kernels (tensor/core/kernel.hpp). The CPU shares
// the code for an element.

#include "calm/tensor/detail/kernels/block/elementwise.hpp"
#include "calm/train/detail/block/ranges.hpp"

namespace calm::detail {

// One parameter's gradient, and its offset in a partial sum.
template <class T> struct tree_slot {
    T* gradient;
    index_t size;
    index_t place;  // offset of its first element
};

// All parameters, in device memory.
template <class T> struct tree_memory {
    tree_slot<T> const* slots;
    parameter_range const* ranges;
    index_t count;  // number of ranges
};

// w = g, g = 0.
struct set_aside {
    template <class V, class T> [[gnu::always_inline]] CALM_HD inline static void at(T* g, T* w, index_t i) {
        store(w + i, load<V>(g + i));
        store(g + i, V{});
    }
};
// g = w + g.
struct add_waiting {
    template <class V, class T> [[gnu::always_inline]] CALM_HD inline static void at(T* g, T* w, index_t i) {
        store(g + i, load<V>(w + i) + load<V>(g + i));
    }
};

// One block per range; w is in `waiting`.
template <class Do, class T> struct tree_kernel {
    static constexpr int threads = 256;
    struct shared {};
    tree_memory<T> all;
    T* waiting;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            parameter_range const range = all.ranges[block];
            tree_slot<T> const slot = all.slots[range.slot];
            for_groups<Block, T>(t, range.begin, range.end, [&]<class V>(index_t i) {
                Do::template at<V>(slot.gradient, waiting + slot.place, i);
            });
        });
    }
};

template <class Do, block_backend Backend, class T>
void run_tree(context<Backend> const& ctx, tree_memory<T> const& all, T* waiting) {
    launch(ctx, all.count, tree_kernel<Do, T>{all, waiting});
}

}  // namespace calm::detail
