#pragma once
// What ranks send each other of parameters: elements of many tensors side by side, in portable block form
// (tensor/kernel.hpp); packets and blocks share what is done to a run of elements.

#include "calm/tensor/kernel.hpp"
#include "calm/train/block/ranges.hpp"

namespace calm::detail {

// Elements of a parameter, and where they stand among those that go together.
struct packed_part {
    index_t slot;  // the parameter's number
    index_t begin;
    index_t end;
    index_t at;  // of the first of them
};

// What there is of a parameter: element i at data[i - first].
template <class T> struct packed_slot {
    T* data;
    index_t first;
};

// What is done to elements first, first + step, ... of a run of n, the first of which is x[0] and stands at `at`.

// They are packed.
template <class T> struct pack {
    T* packed;
    [[gnu::always_inline]] CALM_HD inline void operator()(T* x, index_t at, index_t n, index_t first,
                                                          index_t step) const {
        for (index_t i = first; i < n; i += step) packed[at + i] = x[i];
    }
};
// They are packed, and zero where they were.
template <class T> struct pack_away {
    T* packed;
    [[gnu::always_inline]] CALM_HD inline void operator()(T* x, index_t at, index_t n, index_t first,
                                                          index_t step) const {
        for (index_t i = first; i < n; i += step) {
            packed[at + i] = x[i];
            x[i] = T{};
        }
    }
};
// They become what is packed.
template <class T> struct unpack {
    T const* packed;
    [[gnu::always_inline]] CALM_HD inline void operator()(T* x, index_t at, index_t n, index_t first,
                                                          index_t step) const {
        for (index_t i = first; i < n; i += step) x[i] = packed[at + i];
    }
};
// They become the sum of what each rank has of them, in the tree of the ranks' numbers: that of detail::add_in_tree,
// level by level. What is packed is changed.
template <class T> struct sum_of_ranks {
    T* own;          // of this rank
    T* others;       // of the others, one behind the other
    index_t stride;  // elements of each
    index_t rank;    // this one's number
    index_t count;   // how many there are

    [[gnu::always_inline]] CALM_HD inline T* term(index_t r) const {
        return r == rank ? own : others + (r < rank ? r : r - 1) * stride;
    }
    [[gnu::always_inline]] CALM_HD inline void operator()(T* x, index_t at, index_t n, index_t first,
                                                          index_t step) const {
        for (index_t half = 1; half < count; half *= 2)
            for (index_t r = 0; r + half < count; r += 2 * half) {
                T* const sum = term(r) + at;
                T const* const rest = term(r + half) + at;
                for (index_t i = first; i < n; i += step) sum[i] += rest[i];
            }
        T const* const sum = term(0) + at;
        for (index_t i = first; i < n; i += step) x[i] = sum[i];
    }
};

// Some of the parts, in memory of the executor, and what they are of.
template <class T> struct packed_parts {
    packed_part const* parts;
    index_t count;
    packed_slot<T> const* slots;
};

// A block a part.
template <class T, class Do> struct packing_kernel {
    static constexpr int threads = 256;
    struct shared {};
    packed_parts<T> all;
    Do what;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            packed_part const part = all.parts[block];
            packed_slot<T> const slot = all.slots[part.slot];
            what(slot.data + (part.begin - slot.first), part.at, part.end - part.begin, t, threads);
        });
    }
};

template <block_executor Backend, class T, class Do>
void run_packing(context<Backend> const& ctx, packed_parts<T> const& all, Do const& what) {
    launch(ctx, all.count, packing_kernel<T, Do>{all, what});
}

}  // namespace calm::detail
