#pragma once
/// \file
/// Rotary embeddings (Su et al. 2021) for rows of heads; a head is head_size consecutive elements.
/// \shows{tests/nn/attention_test.cpp,turning_back}

#include "calm/base/error.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/core/tensor_like.hpp"
#include "calm/tensor/detail/kernels/block/rotate.hpp"
#include "calm/tensor/detail/kernels/cpu/rotate.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

namespace detail {

inline rotation rotation_of(extents<dyn, dyn> const& rows, index_t head_size, index_t period, index_t first,
                            rotary_angles const& angles, double direction) {
    require_heads("calm::rotate", rows[1], head_size);
    require(head_size % 2 == 0, errc::usage, "calm::rotate: expected heads of an even size, found ", head_size);
    require(period > 0 || rows[0] == 0, errc::usage, "calm::rotate: expected a period of at least 1, found ", period);
    return {rows[0], rows[1], head_size, period, first, angles, direction};
}

}  // namespace detail

/// Rotates the halves of every head of x (R, heads * head_size) in place. Row r has position first + r % period. The
/// angle of pair i is position * angles.frequency(i, head_size), unscaled position * theta^(-2 i / head_size).
/// `direction` -1 rotates back, which is also the gradient. Throws errc::usage if head_size is odd or does not divide
/// the row, or if period is below 1.
template <tensor_like X>
void rotate(detail::context_of<X>& ctx, X&& x, index_t head_size, index_t period, index_t first,
            rotary_angles const& angles, double direction = 1) {
    auto const turned = detail::written_rows(x);
    detail::run_rotate(ctx, turned.data(),
                       detail::rotation_of(turned.extents(), head_size, period, first, angles, direction));
}

/// As above for S cached sequences: x has T rows for each of them, (S T), at the positions after its existing ones.
template <tensor_like X>
void rotate(detail::context_of<X>& ctx, X&& x, index_t head_size,
            mirrored_span<cached_sequence, detail::backend_of<X>> const& sequences, rotary_angles const& angles) {
    auto const turned = detail::written_rows(x);
    index_t const fresh = detail::rows_of_each("calm::rotate", turned.extent(0), sequences.size());
    detail::run_rotate(ctx, turned.data(), detail::rotation_of(turned.extents(), head_size, fresh, 0, angles, 1),
                       sequences);
}

namespace detail {
// The rotation of y, which has as many rows as x and the same settings.
template <class Y> rotation rotation_beside(Y const& y, rotation const& of_x) {
    rotation to = rotation_of(y.extents(), of_x.head_size, of_x.period, of_x.first, of_x.angles, of_x.direction);
    require(y.extent(0) == of_x.rows, errc::usage, "calm::rotate_both: expected as many rows of both, found ",
            of_x.rows, " and ", y.extent(0));
    return to;
}
}  // namespace detail

/// Rotates two matrices with equally many rows, such as queries and keys, as `rotate` does.
template <tensor_like X, tensor_like Y>
void rotate_both(detail::context_of<X>& ctx, X&& x, Y&& y, index_t head_size, index_t period, index_t first,
                 rotary_angles const& angles, double direction = 1) {
    auto const one = detail::written_rows(x);
    auto const other = detail::written_rows(y);
    auto const of_x = detail::rotation_of(one.extents(), head_size, period, first, angles, direction);
    auto const of_y = detail::rotation_beside(other, of_x);
    if constexpr (block_backend<detail::backend_of<X>>)
        detail::run_rotate(ctx, one.data(), other.data(), of_y.width, of_x);
    else {
        detail::run_rotate(ctx, one.data(), of_x);
        detail::run_rotate(ctx, other.data(), of_y);
    }
}
/// As above for S cached sequences: each matrix has T rows per sequence, (S T).
template <tensor_like X, tensor_like Y>
void rotate_both(detail::context_of<X>& ctx, X&& x, Y&& y, index_t head_size,
                 mirrored_span<cached_sequence, detail::backend_of<X>> const& sequences, rotary_angles const& angles) {
    auto const one = detail::written_rows(x);
    auto const other = detail::written_rows(y);
    index_t const fresh = detail::rows_of_each("calm::rotate_both", one.extent(0), sequences.size());
    auto const of_x = detail::rotation_of(one.extents(), head_size, fresh, 0, angles, 1);
    auto const of_y = detail::rotation_beside(other, of_x);
    if constexpr (block_backend<detail::backend_of<X>>)
        detail::run_rotate(ctx, one.data(), other.data(), of_y.width, of_x, sequences.there);
    else {
        detail::run_rotate(ctx, one.data(), of_x, sequences);
        detail::run_rotate(ctx, other.data(), of_y, sequences);
    }
}

/// For new rows (S T) of S sequences: rotates queries in place as `rotate` does, and appends values and rotated keys,
/// (S T, Width), to the sequences in memory (B, room, Width). One launch on block backends. new_keys may be
/// overwritten. Throws as rotate and append_positions do.
template <tensor_like Q, tensor_like K>
void rotate_and_append(detail::context_of<Q>& ctx, Q&& queries, K&& keys, detail::positions_like<K> const& values,
                       detail::rows_like<K> const& new_keys, detail::rows_read<K> const& new_values, index_t head_size,
                       mirrored_span<cached_sequence, detail::backend_of<Q>> const& sequences,
                       rotary_angles const& angles) {
    char const* const operation = "calm::rotate_and_append";
    detail::positions_like<K> const all = detail::as_view(keys);
    auto const appended = detail::append_of(operation, all, values, new_keys, new_values, sequences);
    if constexpr (block_backend<detail::backend_of<Q>>) {
        auto const turned = detail::written_rows(queries);
        auto const to = detail::rotation_of(turned.extents(), head_size, appended.count, 0, angles, 1);
        detail::rotation_beside(new_keys, to);
        detail::run_rotate_and_append(ctx, turned.data(), to, appended);
    } else {
        rotate_both(ctx, queries, new_keys, head_size, sequences, angles);
        detail::run_append(ctx, appended, sequences);
    }
}

}  // namespace calm
