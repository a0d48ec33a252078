#pragma once
// What attention keeps of the positions it has read, so that a text goes on without reading it again.

#include <algorithm>
#include <numeric>
#include <vector>

#include "calm/tensor/rows.hpp"
#include "calm/tensor/tensor.hpp"

namespace calm {

// Keys (after rotation) and values of B sequences, which may differ in length. Width is kv_heads * head_size.
template <class T, index_t Width, class Backend = cpu> struct kv_cache {
    tensor<T, extents<dyn, dyn, Width>, Backend> keys;    // (B, capacity, Width)
    tensor<T, extents<dyn, dyn, Width>, Backend> values;  // (B, capacity, Width)
    std::vector<index_t> lengths;                         // (B): positions of each that are filled

    // Empty, with memory for `capacity` positions of each of B = sequences; the cache owns it.
    kv_cache(index_t sequences, index_t capacity) :
        keys(extents<dyn, dyn, Width>(sequences, capacity)), values(extents<dyn, dyn, Width>(sequences, capacity)),
        lengths(static_cast<std::size_t>(sequences), 0) {}

    [[nodiscard]] index_t sequences() const { return keys.extent(0); }  // B, how many it has room for
    [[nodiscard]] index_t capacity() const { return keys.extent(1); }   // positions that each sequence has memory for
    // Filled positions of one of 0 .. B - 1.
    [[nodiscard]] index_t length(index_t sequence) const { return lengths[static_cast<std::size_t>(sequence)]; }
    // 0 .. B - 1.
    [[nodiscard]] std::vector<index_t> all() const {
        std::vector<index_t> every(lengths.size());
        std::iota(every.begin(), every.end(), index_t{0});
        return every;
    }

    // Keeps at most the first `length` positions of one sequence, or of each: a branch is read and taken back, or
    // another text takes the place of one that has ended. Throws errc::usage for a negative length.
    void truncate(index_t sequence, index_t length) {
        require(length >= 0, errc::usage, "calm::kv_cache: expected a length of at least 0, found ", length);
        index_t& now = lengths[static_cast<std::size_t>(sequence)];
        now = std::min(now, length);
    }
    // Keeps at most the first `length` positions of every sequence.
    void truncate(index_t length) {
        for (index_t b = 0; b < sequences(); ++b) truncate(b, length);
    }

    // Adds `count` positions, keys and values (count, Width), to a sequence. Throws errc::usage where it is full.
    void append(context<Backend> const& ctx, index_t sequence, T const* key, T const* value, index_t count) {
        index_t& now = lengths[static_cast<std::size_t>(sequence)];
        require(now + count <= capacity(), errc::usage, "calm::kv_cache: the cache holds ", capacity(), " positions, ",
                now + count, " were asked for; make it larger");
        index_t const at = (sequence * capacity() + now) * Width;
        detail::run_copy(ctx, keys.data() + at, key, count * Width);
        detail::run_copy(ctx, values.data() + at, value, count * Width);
        now += count;
    }
};

}  // namespace calm
