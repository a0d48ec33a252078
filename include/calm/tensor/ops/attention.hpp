#pragma once
/// \file
/// Causal attention with grouped key and value heads (Vaswani et al. 2017). B sequences of P positions; the R = B P
/// rows are ordered (B, P). Heads are adjacent within their row, head_size elements each. Query head h reads key head
/// h / (heads / kv_heads).
/// \shows{tests/tensor/attention_graph_test.cpp,by_blocks}

#include <algorithm>
#include <type_traits>

#include "calm/base/error.hpp"
#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/core/tensor_like.hpp"
#include "calm/tensor/detail/kernels/block/attention_in_fp32.hpp"
#include "calm/tensor/detail/kernels/cpu/attention.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm {

namespace detail {

// The shape for queries q (R, D) and keys (R, kv_width); R is a multiple of `positions`.
inline attention_shape shape_of_attention(extents<dyn, dyn> const& q, index_t kv_width, index_t positions,
                                          index_t head_size) {
    index_t const rows = q[0], width = q[1];
    require_heads("calm::attention", width, head_size);
    require_heads("calm::attention", kv_width, head_size);
    require(kv_width > 0 && width % kv_width == 0, errc::usage, "calm::attention: expected ", width / head_size,
            " heads to be a multiple of the key heads, found ", kv_width / head_size);
    require(positions > 0 && rows % positions == 0, errc::usage,
            "calm::attention: expected rows of whole sequences of ", positions, " positions, found ", rows, " rows");
    return {rows / positions, positions, positions,         width / head_size, kv_width / head_size,
            head_size,        width,     positions * width, kv_width,          positions * kv_width};
}

// Checks the shapes of the inputs, (R, D) and (R, kv_width), and of lse, one element per row and head.
inline void require_shapes_of_attention(char const* operation, attention_shape const& a, extents<dyn, dyn> const& q,
                                        extents<dyn, dyn> const& k, extents<dyn, dyn> const& v, index_t lse) {
    index_t const rows = a.sequences * a.queries;
    require_shape(operation, "q", q, {rows, a.q_row});
    require_shape(operation, "k", k, {rows, a.kv_row});
    require_shape(operation, "v", v, {rows, a.kv_row});
    require_size(operation, "lse", lse, rows * a.heads);
}

}  // namespace detail

/// Attention of every sequence of P positions and every head: y (R, D) = softmax(q k^T / sqrt(head_size)) v. Position p
/// attends to 0 .. p. q is (R, D), k and v are (R, KvWidth). lse (B, heads, P) receives the log-sum-exp of the scores.
/// On a device all but lse may be bf16. Throws errc::usage for incomplete sequences or heads, or for shapes that do not
/// fit.
template <tensor_like Y, tensor_like K>
void causal_attention(detail::context_of<Y>& ctx, Y&& y, tensor_like auto&& lse, detail::rows_stored<Y> const& q,
                      K const& k, detail::rows_stored<K> const& v, index_t positions, index_t head_size) {
    auto const out = detail::written_rows(y);
    detail::rows_stored<K> const keys = detail::as_view(k);
    auto const kept = detail::as_view(lse);
    auto const a = detail::shape_of_attention(out.extents(), keys.extent(1), positions, head_size);
    detail::require_shapes_of_attention("calm::causal_attention", a, q.extents(), keys.extents(), v.extents(),
                                        kept.size());
    run_attention(ctx, a, out.data(), kept.data(), q.data(), keys.data(), v.data());
}

/// What causal_attention_back reads of the forward pass, except lse.
template <tensor_like Q, tensor_like K> struct attention_operands {
    detail::rows_stored<Q> y;  ///< (R, D)
    detail::rows_stored<Q> q;  ///< (R, D)
    detail::rows_stored<K> k;  ///< (R, KvWidth)
    detail::rows_stored<K> v;  ///< (R, KvWidth)
    index_t positions;         ///< P
    index_t head_size;         ///< elements per head
};

/// Backward of causal_attention from dy (R, D), and lse and the operands of forward: overwrites dq (R, D), dk and dv
/// (R, KvWidth).
template <tensor_like DQ, tensor_like DK>
void causal_attention_back(detail::context_of<DQ>& ctx, DQ&& dq, DK&& dk,
                           detail::rows_like<DK, detail::scalar_of<DK>> const& dv, detail::rows_stored<DQ> const& dy,
                           tensor_like auto const& lse,
                           std::type_identity_t<attention_operands<DQ, DK>> const& forward) {
    char const* const operation = "calm::causal_attention_back";
    auto const out = detail::written_rows(dq);
    auto const dkeys = detail::written_rows(dk);
    auto const kept = detail::as_view(lse);
    auto const& [y, q, k, v, positions, head_size] = forward;
    auto const a = detail::shape_of_attention(out.extents(), dkeys.extent(1), positions, head_size);
    detail::require_shapes_of_attention(operation, a, q.extents(), k.extents(), v.extents(), kept.size());
    detail::require_shape(operation, "dk", dkeys.extents(), k.extents());
    detail::require_shape(operation, "dv", dv.extents(), k.extents());
    detail::require_shape(operation, "dy", dy.extents(), out.extents());
    detail::require_shape(operation, "y", y.extents(), out.extents());
    detail::attention_gradients<detail::scalar_of<DQ>> const rows{.dq = out.data(),
                                                                  .dk = dkeys.data(),
                                                                  .dv = dv.data(),
                                                                  .dout = dy.data(),
                                                                  .o = y.data(),
                                                                  .lse = kept.data(),
                                                                  .q = q.data(),
                                                                  .k = k.data(),
                                                                  .v = v.data()};
    run_attention_back(ctx, a, rows);
}

/// Causal attention with a KV cache: T new queries for each of S sequences, q and y (S T, D). Keys and values are
/// (B, room, KvWidth) for all B cached sequences. A query sees its sequence's earlier positions and the new ones up to
/// its own. lse (S T heads) receives the log-sum-exp. Throws errc::usage as above, and for a sequence that is not in
/// the cache or exceeds `room`.
template <tensor_like Y, tensor_like K>
void cached_attention(detail::context_of<Y>& ctx, Y&& y, detail::numbers_like<Y> const& lse,
                      detail::rows_read<Y> const& q, K const& keys, detail::positions_read<K> const& values,
                      mirrored_span<cached_sequence, detail::backend_of<Y>> const& sequences, index_t head_size) {
    char const* const operation = "calm::cached_attention";
    auto const out = detail::written_rows(y);
    detail::positions_read<K> const all_keys = detail::as_view(keys);
    index_t const fresh = detail::rows_of_each(operation, out.extent(0), sequences.size());
    auto a = detail::shape_of_attention(out.extents(), all_keys.extent(2), std::max<index_t>(1, fresh), head_size);
    detail::require_shape(operation, "q", q.extents(), out.extents());
    detail::require_size(operation, "lse", lse.size(), out.extent(0) * a.heads);
    detail::require_shape(operation, "values", values.extents(), all_keys.extents());
    detail::require_room(operation, all_keys.extents(), sequences.here, fresh);
    a.keys = 0;  // each sequence has its own
    a.kv_sequence = all_keys.extent(1) * a.kv_row;
    detail::run_cached_attention(ctx, a, sequences, out.data(), lse.data(), q.data(), all_keys.data(), values.data());
}

}  // namespace calm
