#pragma once
// Attention of a device whose rows are stored in bf16, by the kernels that compute it in fp32: between rows in scratch.

#include "calm/tensor/block/attention.hpp"
#include "calm/tensor/rows.hpp"

namespace calm::detail {

// Rows of attention in fp32, in ctx.scratch.
template <device_memory Backend> class widened_rows {
public:
    widened_rows(context<Backend>& ctx, attention_shape const& a) : ctx_(ctx), rows_(a.sequences * a.queries) {}

    // Of rows of `width`.
    float* room(index_t width) { return ctx_.scratch.template take<float>(extents<dyn>(rows_ * width)).data(); }
    float const* of(bf16 const* x, index_t width) {
        float* const there = room(width);
        run_copy(ctx_, there, x, rows_ * width);
        return there;
    }
    // to = x, rounded.
    void round(bf16* to, float const* x, index_t width) { run_copy(ctx_, to, x, rows_ * width); }

private:
    context<Backend>& ctx_;
    index_t rows_;
};

template <device_memory Backend>
void run_attention(context<Backend>& ctx, attention_shape const& a, bf16* o, float* lse, bf16 const* q, bf16 const* k,
                   bf16 const* v) {
    arena_scope const scope(ctx.scratch);
    widened_rows rows(ctx, a);
    float* const out = rows.room(a.q_row);
    run_attention<Backend, float>(ctx, a, out, lse, rows.of(q, a.q_row), rows.of(k, a.kv_row), rows.of(v, a.kv_row));
    rows.round(o, out, a.q_row);
}

template <device_memory Backend>
void run_attention_back(context<Backend>& ctx, attention_shape const& a, bf16* dq, bf16* dk, bf16* dv, bf16 const* dout,
                        bf16 const* o, float const* lse, bf16 const* q, bf16 const* k, bf16 const* v) {
    arena_scope const scope(ctx.scratch);
    widened_rows rows(ctx, a);
    float* const of_q = rows.room(a.q_row);
    float* const of_k = rows.room(a.kv_row);
    float* const of_v = rows.room(a.kv_row);
    run_attention_back<Backend, float>(ctx, a, of_q, of_k, of_v, rows.of(dout, a.q_row), rows.of(o, a.q_row), lse,
                                       rows.of(q, a.q_row), rows.of(k, a.kv_row), rows.of(v, a.kv_row));
    rows.round(dq, of_q, a.q_row);
    rows.round(dk, of_k, a.kv_row);
    rows.round(dv, of_v, a.kv_row);
}

}  // namespace calm::detail
