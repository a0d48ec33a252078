#pragma once
// What attention keeps of the positions it has read, so that a text goes on without reading it again.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "calm/tensor/attention_shape.hpp"
#include "calm/tensor/positions.hpp"
#include "calm/tensor/rotate.hpp"
#include "calm/tensor/rows.hpp"
#include "calm/tensor/space.hpp"
#include "calm/tensor/tensor.hpp"

namespace calm {

// Keys (after rotation) and values of B sequences, which may differ in length. Width is kv_heads * head_size. Memory
// follows what is filled: it doubles where a sequence outgrows it, up to the capacity.
template <index_t Width, class Space = space<>> struct kv_cache {
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using shape = extents<dyn, dyn, Width>;                  // (B, room, Width)
    using rows_read = matrix_view<T const, Width, Backend>;  // (count, Width)
    static constexpr index_t least_room = 64;                // room at first, but at most the capacity

    tensor<T, shape, Backend> keys;    // (B, room, Width)
    tensor<T, shape, Backend> values;  // (B, room, Width)
    std::vector<index_t> lengths;      // (B): positions of each that are filled

    // Throws errc::memory.
    kv_cache(index_t sequences, index_t capacity) :
        keys(shape(sequences, std::min(capacity, least_room))), values(keys.extents()),
        lengths(static_cast<std::size_t>(sequences), 0), capacity_(capacity) {}

    // B.
    [[nodiscard]] index_t sequences() const { return keys.extent(0); }
    // How many positions a sequence may have.
    [[nodiscard]] index_t capacity() const { return capacity_; }
    // How many positions each sequence has memory for.
    [[nodiscard]] index_t room() const { return keys.extent(1); }
    // How many positions of a sequence, 0 .. B - 1, are filled.
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

    // Some sequences, named once each, as they are now.
    [[nodiscard]] std::vector<cached_sequence> as_now(std::span<index_t const> sequences) const {
        std::vector<cached_sequence> now;
        for (index_t const b : sequences) now.push_back({b, length(b)});
        return now;
    }

    // Adds positions, keys and values (count, Width), to a sequence. Throws errc::usage where it is full, and
    // errc::memory.
    void append(context<Backend>& ctx, index_t sequence, rows_read const& key, rows_read const& value) {
        arena_scope const scope(ctx.scratch);
        auto const one = as_now({&sequence, 1});
        append(ctx, bring(ctx, std::span(one)), key, value);
    }
    // The same to some sequences as they are now, named once each: keys and values (S, count, Width).
    void append(context<Backend> const& ctx, on_both_sides<cached_sequence, Backend> const& sequences,
                rows_read const& key, rows_read const& value) {
        index_t const count = reserve_rows(ctx, sequences, key.extent(0));
        append_positions(ctx, keys, values, key, value, sequences);
        grow_by(sequences, count);
    }
    // The same of keys that are not rotated yet, as are queries (S count, heads * head_size) of the same positions:
    // both are, the queries in place; `key` is used up. Throws also as rotate.
    template <index_t Queries>
    void append_rotated(context<Backend>& ctx, on_both_sides<cached_sequence, Backend> const& sequences,
                        matrix_view<T, Queries, Backend> const& query, matrix_view<T, Width, Backend> const& key,
                        rows_read const& value, index_t head_size, double theta) {
        index_t const count = reserve_rows(ctx, sequences, key.extent(0));
        rotate_and_append(ctx, query, keys, values, key, value, head_size, sequences, theta);
        grow_by(sequences, count);
    }

    // Memory for so many more positions of these sequences; throws as append.
    void reserve(context<Backend> const& ctx, std::span<cached_sequence const> sequences, index_t count) {
        for (auto const& of : sequences) make_room(ctx, of.length, count);
    }

private:
    // Memory for so many rows in all; how many each sequence has of them.
    index_t reserve_rows(context<Backend> const& ctx, on_both_sides<cached_sequence, Backend> const& sequences,
                         index_t rows) {
        index_t const count = rows / std::max<index_t>(1, sequences.size());
        reserve(ctx, sequences.here, count);
        return count;
    }
    void grow_by(on_both_sides<cached_sequence, Backend> const& sequences, index_t count) {
        for (auto const& of : sequences.here) lengths[static_cast<std::size_t>(of.sequence)] = of.length + count;
    }

    void make_room(context<Backend> const& ctx, index_t now, index_t count) {
        auto const wanted = static_cast<std::uint64_t>(now) + static_cast<std::uint64_t>(count);
        require(count <= capacity() - now, errc::usage, "calm::kv_cache: the cache holds ", capacity(), " positions, ",
                wanted, " were asked for; make it larger");
        if (count > room() - now) grow(ctx, std::max(now + count, std::min(capacity(), 2 * room())));
    }

    void grow(context<Backend> const& ctx, index_t positions) {
        tensor<T, shape, Backend> more_keys(shape(sequences(), positions)), more_values(more_keys.extents());
        move_positions(ctx, more_keys, more_values, keys, values, *std::max_element(lengths.begin(), lengths.end()));
        keys = std::move(more_keys);
        values = std::move(more_values);
    }

    index_t capacity_;
};

}  // namespace calm
