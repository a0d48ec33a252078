#pragma once
// Packs elements of many parameters into one buffer for ranks to exchange, as portable block kernels
// (tensor/core/kernel.hpp). The CPU shares the code for a run of elements.

#include "calm/tensor/core/kernel.hpp"
#include "calm/train/detail/block/ranges.hpp"

namespace calm::detail {

// Elements begin .. end - 1 of a parameter, and their offset in the packed buffer.
struct packed_part {
    index_t slot;  // index of the parameter
    index_t begin;
    index_t end;
    index_t at;  // offset of the first element
};

// A parameter, or this rank's part of it: element i is at data[i - first].
template <class T> struct packed_slot {
    T* data;
    index_t first;
};

// Operations on elements first, first + step, ... of a run of n that starts at x[0] and packed[at].

// Copies to the buffer.
template <class T> struct pack {
    T* packed;
    [[gnu::always_inline]] CALM_HD inline void operator()(T* x, index_t at, index_t n, index_t first,
                                                          index_t step) const {
        for (index_t i = first; i < n; i += step) packed[at + i] = x[i];
    }
};
// Copies to the buffer and clears the source.
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
// Copies from the buffer.
template <class T> struct unpack {
    T const* packed;
    [[gnu::always_inline]] CALM_HD inline void operator()(T* x, index_t at, index_t n, index_t first,
                                                          index_t step) const {
        for (index_t i = first; i < n; i += step) x[i] = packed[at + i];
    }
};
// x = sum over the ranks, level by level in the same tree as detail::add_in_tree. Overwrites the packed elements.
template <class T> struct sum_of_ranks {
    T* own;          // this rank's elements
    T* others;       // the elements of the other ranks, in order
    index_t stride;  // elements per rank
    index_t rank;    // this rank
    index_t count;   // number of ranks

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

// Some parts, in device memory, and the parameters that they refer to.
template <class T> struct packed_parts {
    packed_part const* parts;
    index_t count;
    packed_slot<T> const* slots;
};

// One block per part.
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

template <block_backend Backend, class T, class Do>
void run_packing(context<Backend> const& ctx, packed_parts<T> const& all, Do const& what) {
    launch(ctx, all.count, packing_kernel<T, Do>{all, what});
}

}  // namespace calm::detail
