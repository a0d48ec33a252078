#pragma once
// Attention of a device whose result is stored in bf16, by the kernels that compute it in fp32.

#include "calm/tensor/block/attention.hpp"
#include "calm/tensor/rows.hpp"

namespace calm::detail {

template <device_memory Backend>
void run_attention(context<Backend>& ctx, attention_shape const& a, bf16* o, float* lse, float const* q, float const* k,
                   float const* v) {
    arena_scope const scope(ctx.scratch);
    auto const full = ctx.scratch.template take<float>(extents<dyn>(a.sequences * a.queries * a.q_row));
    run_attention<Backend, float>(ctx, a, full.data(), lse, q, k, v);
    run_copy(ctx, o, full.data(), full.size());
}
template <device_memory Backend>
void run_attention_back(context<Backend>& ctx, attention_shape const& a, float* dq, float* dk, float* dv,
                        float const* dout, bf16 const* o, float const* lse, float const* q, float const* k,
                        float const* v) {
    arena_scope const scope(ctx.scratch);
    auto const full = ctx.scratch.template take<float>(extents<dyn>(a.sequences * a.queries * a.q_row));
    run_copy(ctx, full.data(), o, full.size());
    run_attention_back<Backend, float>(ctx, a, dq, dk, dv, dout, full.data(), lse, q, k, v);
}

}  // namespace calm::detail
