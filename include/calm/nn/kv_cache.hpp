#pragma once
// What attention keeps of the positions it has read, so that a text goes on without reading it again.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "calm/tensor/attention_shape.hpp"
#include "calm/tensor/rows.hpp"
#include "calm/tensor/space.hpp"
#include "calm/tensor/tensor.hpp"

namespace calm {

namespace detail {

// Keys and values (S, count, width) behind what S sequences have, in memory (B, room, width) for each.
template <class T> struct append_positions {
    T* keys;
    T* values;
    T const* new_keys;
    T const* new_values;
    cached_sequence const* sequences;
    index_t count, room, width;
    // Where new positions of a sequence go.
    [[nodiscard]] CALM_HD index_t place(cached_sequence const& of) const {
        return (of.sequence * room + of.length) * width;
    }
    CALM_HD void operator()(index_t i) const {
        index_t const each = count * width;
        index_t const at = place(sequences[i / each]) + i % each;
        keys[at] = new_keys[i];
        values[at] = new_values[i];
    }
};
template <block_executor Backend, class T>
void run_append(context<Backend> const& ctx, append_positions<T> const& what,
                on_both_sides<cached_sequence, Backend> const& sequences) {
    for_each(ctx, sequences.size() * what.count * what.width, what);
}
template <class T>
void run_append(context<cpu> const& ctx, append_positions<T> what,
                on_both_sides<cached_sequence, cpu> const& sequences) {
    index_t const each = what.count * what.width;
    for (auto const& of : sequences.here) {
        run_copy(ctx, what.keys + what.place(of), what.new_keys, each);
        run_copy(ctx, what.values + what.place(of), what.new_values, each);
        what.new_keys += each, what.new_values += each;
    }
}

// The first `filled` positions of B sequences go from memory (B, room, width) to the larger (B, more, width).
template <class T> struct move_positions {
    T* more_keys;
    T* more_values;
    T const* keys;
    T const* values;
    index_t filled, room, more, width;
    CALM_HD void operator()(index_t i) const {
        index_t const each = filled * width;
        index_t const sequence = i / each, at = i % each;
        more_keys[sequence * more * width + at] = keys[sequence * room * width + at];
        more_values[sequence * more * width + at] = values[sequence * room * width + at];
    }
};
template <block_executor Backend, class T>
void run_move(context<Backend> const& ctx, move_positions<T> const& what, index_t sequences) {
    for_each(ctx, sequences * what.filled * what.width, what);
}
template <class T> void run_move(context<cpu> const& ctx, move_positions<T> const& what, index_t sequences) {
    index_t const each = what.filled * what.width;
    for (index_t b = 0; b < sequences; ++b) {
        run_copy(ctx, what.more_keys + b * what.more * what.width, what.keys + b * what.room * what.width, each);
        run_copy(ctx, what.more_values + b * what.more * what.width, what.values + b * what.room * what.width, each);
    }
}

}  // namespace detail

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
        index_t const count = key.extent(0) / std::max<index_t>(1, sequences.size());
        for (auto const& of : sequences.here) make_room(ctx, of.length, count);
        detail::run_append(ctx,
                           detail::append_positions<T>{keys.data(), values.data(), key.data(), value.data(),
                                                       sequences.there, count, room(), Width},
                           sequences);
        for (auto const& of : sequences.here) lengths[static_cast<std::size_t>(of.sequence)] = of.length + count;
    }

private:
    void make_room(context<Backend> const& ctx, index_t now, index_t count) {
        auto const wanted = static_cast<std::uint64_t>(now) + static_cast<std::uint64_t>(count);
        require(count <= capacity() - now, errc::usage, "calm::kv_cache: the cache holds ", capacity(), " positions, ",
                wanted, " were asked for; make it larger");
        if (count > room() - now) grow(ctx, std::max(now + count, std::min(capacity(), 2 * room())));
    }

    void grow(context<Backend> const& ctx, index_t positions) {
        tensor<T, shape, Backend> more_keys(shape(sequences(), positions)), more_values(more_keys.extents());
        detail::run_move(ctx,
                         detail::move_positions<T>{more_keys.data(), more_values.data(), keys.data(), values.data(),
                                                   *std::max_element(lengths.begin(), lengths.end()), room(), positions,
                                                   Width},
                         sequences());
        keys = std::move(more_keys);
        values = std::move(more_values);
    }

    index_t capacity_;
};

}  // namespace calm
