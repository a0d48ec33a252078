#pragma once
// Positions of cached sequences: appending new ones, and moving all of them to larger memory.

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/detail/core/tensor_like.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/kernels/cpu/rows.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

// Appends keys and values (S, count, width) to S sequences in memory (B, room, width).
template <class T> struct append_kernel {
    T* keys;
    T* values;
    T const* new_keys;
    T const* new_values;
    cached_sequence const* sequences;
    index_t count, room, width;
    // Offset of a sequence's new positions.
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
template <block_backend Backend, class T>
void run_append(context<Backend> const& ctx, append_kernel<T> const& what,
                mirrored_span<cached_sequence, Backend> const& sequences) {
    for_each(ctx, sequences.size() * what.count * what.width, what);
}
template <class T>
void run_append(context<cpu> const& ctx, append_kernel<T> what, mirrored_span<cached_sequence, cpu> const& sequences) {
    index_t const each = what.count * what.width;
    for (auto const& of : sequences.here) {
        run_copy(ctx, what.keys + what.place(of), what.new_keys, each);
        run_copy(ctx, what.values + what.place(of), what.new_values, each);
        what.new_keys += each, what.new_values += each;
    }
}

// Copies the first `filled` positions of B sequences from memory (B, room, width) to the larger (B, more, width).
template <class T> struct move_kernel {
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
template <block_backend Backend, class T>
void run_move(context<Backend> const& ctx, move_kernel<T> const& what, index_t sequences) {
    for_each(ctx, sequences * what.filled * what.width, what);
}
template <class T> void run_move(context<cpu> const& ctx, move_kernel<T> const& what, index_t sequences) {
    index_t const each = what.filled * what.width;
    for (index_t b = 0; b < sequences; ++b) {
        run_copy(ctx, what.more_keys + b * what.more * what.width, what.keys + b * what.room * what.width, each);
        run_copy(ctx, what.more_values + b * what.more * what.width, what.values + b * what.room * what.width, each);
    }
}

// Checks the operands of an append. Throws errc::usage if a sequence does not exist or has no room for the new keys and
// values, or if shapes do not fit.
template <tensor_like K>
append_kernel<scalar_of<K>> append_of(char const* operation, K const& keys, positions_like<K> const& values,
                                      rows_read<K> const& new_keys, rows_read<K> const& new_values,
                                      mirrored_span<cached_sequence, backend_of<K>> const& sequences) {
    index_t const count = rows_of_each(operation, new_keys.extent(0), sequences.size());
    require_shape(operation, "values", values.extents(), keys.extents());
    require_size(operation, "rows", new_keys.extent(1), keys.extent(2));
    require_shape(operation, "new values", new_values.extents(), new_keys.extents());
    require_room(operation, keys.extents(), sequences.here, count);
    return {keys.data(),     values.data(), new_keys.data(), new_values.data(),
            sequences.there, count,         keys.extent(1),  keys.extent(2)};
}

// Appends new keys and values (S count, Width) to S different sequences in memory (B, room, Width). Throws errc::usage
// if a sequence does not exist or has no room for them, or if shapes do not fit.
template <tensor_like K>
void append_positions(context_of<K> const& ctx, K&& keys, positions_like<K> const& values, rows_read<K> const& new_keys,
                      rows_read<K> const& new_values, mirrored_span<cached_sequence, backend_of<K>> const& sequences) {
    positions_like<K> const all = as_view(keys);
    run_append(ctx, append_of("calm::append_positions", all, values, new_keys, new_values, sequences), sequences);
}

// Copies the first `filled` positions of every sequence, keys and values (B, room, Width), to larger memory (B, more,
// Width), in one launch. Throws errc::usage if either has fewer positions, or if shapes do not fit.
template <tensor_like K>
void move_positions(context_of<K> const& ctx, K&& more_keys, positions_like<K> const& more_values,
                    positions_read<K> const& keys, positions_read<K> const& values, index_t filled) {
    char const* const operation = "calm::move_positions";
    positions_like<K> const all = as_view(more_keys);
    require_shape(operation, "the larger values", more_values.extents(), all.extents());
    require_shape(operation, "keys", keys.extents(), {all.extent(0), keys.extent(1), all.extent(2)});
    require_shape(operation, "values", values.extents(), keys.extents());
    require(filled >= 0 && filled <= keys.extent(1) && filled <= all.extent(1), errc::usage, operation,
            ": expected room for ", filled, " positions of a sequence, found ", keys.extent(1), " and ", all.extent(1));
    run_move(ctx,
             move_kernel<scalar_of<K>>{all.data(), more_values.data(), keys.data(), values.data(), filled,
                                       keys.extent(1), all.extent(1), all.extent(2)},
             all.extent(0));
}

}  // namespace calm::detail
