#pragma once
// Attention on a device whose rows are stored in bf16, by the fp32 kernels: rows are converted through ctx.workspace.

#include "calm/tensor/detail/kernels/block/attention.hpp"
#include "calm/tensor/detail/kernels/block/converted_attention.hpp"

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
void run_attention_back(context<Backend>& ctx, attention_shape const& a, attention_gradients<bf16> const& of) {
    attend_back_converted<float>(
        ctx, a, of, [&](attention_gradients<float> const& full) { run_attention_back<Backend, float>(ctx, a, full); });
}

}  // namespace calm::detail
