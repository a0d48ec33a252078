#pragma once
// Rotary embeddings and causal attention with grouped key and value heads. Sizes: B sequences of P positions, rows are
// (B, P); heads of head_size numbers lie side by side in a row; query head h reads key head h / (heads / kv_heads).
// Vaswani et al. 2017; Su et al. 2021.

#include <algorithm>
#include <type_traits>

#include "calm/base/error.hpp"
#include "calm/tensor/attention_shape.hpp"
#include "calm/tensor/block/attention.hpp"
#include "calm/tensor/block/rotate.hpp"
#include "calm/tensor/cpu/attention.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// Rotates halves of every head of x (R, heads * head_size) in place: row r holds position first + r % period, angle
// position * theta^(-2 i / head_size). direction -1 turns back, which is also the gradient.
template <class T, index_t Width, class Backend>
void rotate(context<Backend>& ctx, matrix_view<T, Width, Backend> const& x, index_t head_size, index_t period,
            index_t first, double theta, double direction = 1) {
    detail::run_rotate(ctx, x.data(),
                       detail::rotation{x.extent(0), x.extent(1), head_size, period, first, theta, direction});
}

// The same of rows (S, T), T of each of some sequences, that hold the positions behind those that it has so far.
template <class T, index_t Width, class Backend>
void rotate(context<Backend>& ctx, matrix_view<T, Width, Backend> const& x, index_t head_size,
            on_both_sides<cached_sequence, Backend> const& sequences, double theta) {
    index_t const fresh = x.extent(0) / std::max<index_t>(1, sequences.size());
    detail::run_rotate(ctx, x.data(), detail::rotation{x.extent(0), x.extent(1), head_size, fresh, 0, theta, 1},
                       sequences);
}

namespace detail {

template <index_t D, index_t KvWidth>
attention_shape shape_of_attention(index_t rows, index_t positions, index_t head_size) {
    require(positions > 0 && rows % positions == 0, errc::usage,
            "calm::attention: expected rows of whole sequences of ", positions, " positions, found ", rows, " rows");
    return {rows / positions, positions, positions,     D / head_size, KvWidth / head_size,
            head_size,        D,         positions * D, KvWidth,       positions * KvWidth};
}

}  // namespace detail

// y (R, D) = softmax(q k^T / sqrt(head_size)) v of every sequence of P positions and every head, position p attending
// to 0 .. p; q (R, D), k and v (R, KvWidth). lse (B, heads, P) keeps the logarithms of the sums. Throws errc::usage
// where rows are no whole sequences.
template <class T, index_t D, index_t KvWidth, class Lse, class Backend>
void causal_attention(context<Backend>& ctx, matrix_view<T, D, Backend> const& y, view<T, Lse, Backend> const& lse,
                      std::type_identity_t<matrix_view<T const, D, Backend>> const& q,
                      matrix_view<T, KvWidth, Backend> const& k, matrix_view<T, KvWidth, Backend> const& v,
                      index_t positions, index_t head_size) {
    detail::run_attention(ctx, detail::shape_of_attention<D, KvWidth>(y.extent(0), positions, head_size), y.data(),
                          lse.data(), static_cast<T const*>(q.data()), static_cast<T const*>(k.data()),
                          static_cast<T const*>(v.data()));
}

// From dy (R, D) of what the above computed: dq (R, D), dk and dv (R, KvWidth) are overwritten.
template <class T, index_t D, index_t KvWidth, class Lse, class Backend>
void causal_attention_back(context<Backend>& ctx, matrix_view<T, D, Backend> const& dq,
                           matrix_view<T, KvWidth, Backend> const& dk, matrix_view<T, KvWidth, Backend> const& dv,
                           std::type_identity_t<matrix_view<T const, D, Backend>> const& dy,
                           std::type_identity_t<matrix_view<T const, D, Backend>> const& y,
                           view<T, Lse, Backend> const& lse,
                           std::type_identity_t<matrix_view<T const, D, Backend>> const& q,
                           matrix_view<T, KvWidth, Backend> const& k, matrix_view<T, KvWidth, Backend> const& v,
                           index_t positions, index_t head_size) {
    detail::run_attention_back(ctx, detail::shape_of_attention<D, KvWidth>(dq.extent(0), positions, head_size),
                               dq.data(), dk.data(), dv.data(), dy.data(), y.data(), lse.data(), q.data(), k.data(),
                               v.data());
}

// y (S T, D): T queries q (S T, D) of each of some sequences, against the keys and values (B, room, KvWidth) of all:
// those of its sequence so far, and its own T behind them. lse (S T heads) keeps the logarithms of the sums.
template <class T, index_t D, index_t KvWidth, class Backend>
void cached_attention(context<Backend>& ctx, matrix_view<T, D, Backend> const& y,
                      vector_view<T, dyn, Backend> const& lse,
                      std::type_identity_t<matrix_view<T const, D, Backend>> const& q,
                      view<T, extents<dyn, dyn, KvWidth>, Backend> const& keys,
                      view<T, extents<dyn, dyn, KvWidth>, Backend> const& values,
                      on_both_sides<cached_sequence, Backend> const& sequences, index_t head_size) {
    index_t const count = sequences.size();
    index_t const fresh = count > 0 ? y.extent(0) / count : 0;
    detail::attention_shape const a{count,     fresh, 0,         D / head_size, KvWidth / head_size,
                                    head_size, D,     fresh * D, KvWidth,       keys.extent(1) * KvWidth};
    detail::run_cached_attention(ctx, a, sequences, y.data(), lse.data(), q.data(), keys.data(), values.data());
}

}  // namespace calm
