#pragma once
/// \file
/// Keys and values of the positions processed so far, so that generation need not recompute them.
/// \shows{tests/nn/kv_cache_test.cpp,sequences_grow_and_shrink_independently}

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/tensor/core/space.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/detail/core/paged_tensor.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"
#include "calm/tensor/detail/ops/positions.hpp"
#include "calm/tensor/ops/rotate.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

/// Keys (after rotation) and values of B sequences of possibly different lengths. Width is kv_heads * head_size. On a
/// host every sequence has the addresses of its capacity and takes memory page by page as it grows, so nothing moves
/// (as in vAttention, Prabhu et al. 2024). On a device the memory of all sequences doubles when one outgrows it.
template <index_t Width, class Space = space<>> struct kv_cache {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    using shape = extents<dyn, dyn, Width>;                  ///< (B, room, Width)
    using rows_read = matrix_view<T const, Width, Backend>;  ///< (count, Width)
    static constexpr bool is_paged = host_memory<Backend>;   ///< whether memory is taken page by page
    static constexpr index_t least_room = 64;                ///< initial room of a device, unless capacity is less
    /// What holds keys or values.
    using memory = std::conditional_t<is_paged, detail::paged_tensor<T, shape, Backend>, tensor<T, shape, Backend>>;

    memory keys;                   ///< (B, room, Width)
    memory values;                 ///< (B, room, Width)
    std::vector<index_t> lengths;  ///< (B): filled positions per sequence

    /// An empty cache for B = sequences, of at most `capacity` positions each. Throws errc::memory.
    kv_cache(index_t sequences, index_t capacity) :
        keys(shape(sequences, is_paged ? capacity : std::min(capacity, least_room))), values(keys.extents()),
        lengths(static_cast<std::size_t>(sequences), 0), capacity_(capacity) {}

    /// The number of sequences B.
    [[nodiscard]] index_t sequences() const { return keys.extent(0); }
    /// The maximum number of positions per sequence.
    [[nodiscard]] index_t capacity() const { return capacity_; }
    /// The number of positions per sequence that memory, or addresses on a host, are allocated for.
    [[nodiscard]] index_t room() const { return keys.extent(1); }
    /// The number of filled positions of a sequence, 0 .. B - 1.
    [[nodiscard]] index_t length(index_t sequence) const { return lengths[static_cast<std::size_t>(sequence)]; }
    /// All sequence indices, 0 .. B - 1.
    [[nodiscard]] std::vector<index_t> all() const {
        std::vector<index_t> every(lengths.size());
        std::iota(every.begin(), every.end(), index_t{0});
        return every;
    }

    /// Shortens one sequence to at most its first `length` positions, to drop a branch or to reuse its place for
    /// another text. Throws errc::usage for a negative length.
    void truncate(index_t sequence, index_t length) {
        require(length >= 0, errc::usage, "calm::kv_cache: expected a length of at least 0, found ", length);
        index_t& now = lengths[static_cast<std::size_t>(sequence)];
        now = std::min(now, length);
    }
    /// Shortens every sequence to at most `length` positions.
    void truncate(index_t length) {
        for (index_t b = 0; b < sequences(); ++b) truncate(b, length);
    }

    /// Empties a sequence and on a host gives its memory back.
    void release(index_t sequence) {
        truncate(sequence, 0);
        if constexpr (is_paged)
            for (auto* const part : {&keys, &values}) part->discard(sequence * room() * Width, room() * Width);
    }

    /// The given distinct sequences with their current lengths.
    [[nodiscard]] std::vector<cached_sequence> as_now(std::span<index_t const> sequences) const {
        std::vector<cached_sequence> now;
        for (index_t const b : sequences) now.push_back({b, length(b)});
        return now;
    }

    /// Appends keys and values (count, Width) to one sequence. Throws errc::usage if the sequence is full, errc::memory
    /// if allocation fails.
    void append(context<Backend>& ctx, index_t sequence, rows_read const& key, rows_read const& value) {
        arena_scope const scope(ctx.workspace);
        auto const one = as_now({&sequence, 1});
        append(ctx, to_device(ctx, std::span(one)), key, value);
    }
    /// Appends keys and values (S, count, Width) to S distinct sequences.
    void append(context<Backend> const& ctx, mirrored_span<cached_sequence, Backend> const& sequences,
                rows_read const& key, rows_read const& value) {
        index_t const count = reserve_rows(ctx, sequences, key.extent(0));
        detail::append_positions(ctx, keys.view(), values.view(), key, value, sequences);
        grow_by(sequences, count);
    }
    /// Rotates keys and queries, then appends keys and values. Queries (S count, heads * head_size) are rotated in
    /// place; the contents of `key` are undefined afterwards. Throws also as rotate does.
    template <index_t Queries>
    void append_rotated(context<Backend>& ctx, mirrored_span<cached_sequence, Backend> const& sequences,
                        matrix_view<T, Queries, Backend> const& query, matrix_view<T, Width, Backend> const& key,
                        rows_read const& value, index_t head_size, rotary_angles const& angles) {
        index_t const count = reserve_rows(ctx, sequences, key.extent(0));
        rotate_and_append(ctx, query, keys.view(), values.view(), key, value, head_size, sequences, angles);
        grow_by(sequences, count);
    }

    /// Allocates memory for `count` more positions of these sequences. Throws as append does.
    void reserve(context<Backend> const& ctx, std::span<cached_sequence const> sequences, index_t count) {
        for (auto const& of : sequences) make_room(ctx, of.length, count);
    }

private:
    // Allocates for `rows` rows in all; returns the number of rows per sequence.
    index_t reserve_rows(context<Backend> const& ctx, mirrored_span<cached_sequence, Backend> const& sequences,
                         index_t rows) {
        index_t const count = rows / std::max<index_t>(1, sequences.size());
        reserve(ctx, sequences.here, count);
        return count;
    }
    void grow_by(mirrored_span<cached_sequence, Backend> const& sequences, index_t count) {
        for (auto const& of : sequences.here) lengths[static_cast<std::size_t>(of.sequence)] = of.length + count;
    }

    void make_room([[maybe_unused]] context<Backend> const& ctx, index_t now, index_t count) {
        auto const wanted = static_cast<std::uint64_t>(now) + static_cast<std::uint64_t>(count);
        require(count <= capacity() - now, errc::usage, "calm::kv_cache: the cache holds ", capacity(),
                " positions, but ", wanted, " are needed; make it larger");
        if constexpr (!is_paged)
            if (count > room() - now) grow(ctx, std::max(now + count, std::min(capacity(), 2 * room())));
    }

    void grow(context<Backend> const& ctx, index_t positions) requires(!is_paged) {
        memory more_keys(shape(sequences(), positions)), more_values(more_keys.extents());
        detail::move_positions(ctx, more_keys, more_values, keys, values,
                               *std::max_element(lengths.begin(), lengths.end()));
        keys = std::move(more_keys);
        values = std::move(more_values);
    }

    index_t capacity_;
};

}  // namespace calm
