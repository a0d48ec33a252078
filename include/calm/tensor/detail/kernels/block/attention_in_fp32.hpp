#pragma once
// Attention on a device whose rows are stored in bf16, by the fp32 kernels: rows are converted through ctx.workspace.

#include "calm/tensor/detail/kernels/block/attention.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"

namespace calm::detail {

template <device_memory Backend>
void run_attention(context<Backend>& ctx, attention_shape const& a, bf16* o, float* lse, bf16 const* q, bf16 const* k,
                   bf16 const* v) {
    arena_scope const scope(ctx.workspace);
    converted_rows<float, Backend> rows(ctx, a.sequences * a.queries);
    float* const out = rows.room(a.q_row);
    run_attention<Backend, float>(ctx, a, out, lse, rows.of(q, a.q_row), rows.of(k, a.kv_row), rows.of(v, a.kv_row));
    rows.put(o, out, a.q_row);
}

template <device_memory Backend>
void run_attention_back(context<Backend>& ctx, attention_shape const& a, bf16* dq, bf16* dk, bf16* dv, bf16 const* dout,
                        bf16 const* o, float const* lse, bf16 const* q, bf16 const* k, bf16 const* v) {
    arena_scope const scope(ctx.workspace);
    converted_rows<float, Backend> rows(ctx, a.sequences * a.queries);
    float* const of_q = rows.room(a.q_row);
    float* const of_k = rows.room(a.kv_row);
    float* const of_v = rows.room(a.kv_row);
    run_attention_back<Backend, float>(ctx, a, of_q, of_k, of_v, rows.of(dout, a.q_row), rows.of(o, a.q_row), lse,
                                       rows.of(q, a.q_row), rows.of(k, a.kv_row), rows.of(v, a.kv_row));
    rows.put(dq, of_q, a.q_row);
    rows.put(dk, of_k, a.kv_row);
    rows.put(dv, of_v, a.kv_row);
}

}  // namespace calm::detail
