#pragma once
// Attention in bf16 on a device, around what computes its graphs (attention_graph.hpp). Inputs in fp32 are rounded into
// ctx.workspace, and their outputs are converted back.

#include "calm/tensor/detail/device/attention_graph.hpp"
#include "calm/tensor/detail/kernels/block/converted_attention.hpp"

namespace calm::detail {

// o and lse from q, k and v; a head's rows must be whole 16-byte groups. Calls compute(memory), which runs the forward
// graph and may use ctx.workspace.
template <device_memory Backend, class Compute>
void attend_in_bf16(context<Backend>&, attention_shape const&, bf16* o, float* lse, bf16 const* q, bf16 const* k,
                    bf16 const* v, Compute const& compute) {
    using part = attention_part;
    attention_memory memory;
    memory[part::q] = const_cast<bf16*>(q);  // only read, as is everything const here and below
    memory[part::k] = const_cast<bf16*>(k);
    memory[part::v] = const_cast<bf16*>(v);
    memory[part::o] = o;
    memory[part::lse] = lse;
    compute(memory);
}

// dq, dk and dv from dout and forward's inputs and outputs. Calls compute(memory), which runs the backward graph.
template <device_memory Backend, class Compute>
void attend_back_in_bf16(context<Backend>& ctx, attention_shape const& a, attention_gradients<bf16> const& of,
                         Compute const& compute) {
    using part = attention_part;
    arena_scope const scope(ctx.workspace);
    index_t const rows = a.sequences * a.queries;
    auto const take = [&]<class T>(T*, index_t n) { return ctx.workspace.template take<T>(extents<dyn>(n)).data(); };
    attention_memory memory;
    memory[part::q] = const_cast<bf16*>(of.q);
    memory[part::k] = const_cast<bf16*>(of.k);
    memory[part::v] = const_cast<bf16*>(of.v);
    memory[part::o] = const_cast<bf16*>(of.o);
    memory[part::dout] = const_cast<bf16*>(of.dout);
    memory[part::lse] = const_cast<float*>(of.lse);
    memory[part::dq] = of.dq;
    memory[part::dk] = of.dk;
    memory[part::dv] = of.dv;
    if (a.group() > 1)
        for (auto const each : {part::wide_dk, part::wide_dv}) memory[each] = take(of.dk, rows * a.q_row);
    memory[part::delta] = take(static_cast<float*>(nullptr), rows * a.heads);
    compute(memory);
}

// Overloads for fp32: they round the inputs to bf16 and convert the outputs back.
template <device_memory Backend, class Compute>
void attend_in_bf16(context<Backend>& ctx, attention_shape const& a, float* o, float* lse, float const* q,
                    float const* k, float const* v, Compute const& compute) {
    arena_scope const scope(ctx.workspace);
    converted_rows<bf16, Backend> rows(ctx, a.sequences * a.queries);
    bf16* const out = rows.room(a.q_row);
    attend_in_bf16(ctx, a, out, lse, rows.of(q, a.q_row), rows.of(k, a.kv_row), rows.of(v, a.kv_row), compute);
    rows.put(o, out, a.q_row);
}
template <device_memory Backend, class Compute>
void attend_back_in_bf16(context<Backend>& ctx, attention_shape const& a, attention_gradients<float> const& of,
                         Compute const& compute) {
    attend_back_converted<bf16>(
        ctx, a, of, [&](attention_gradients<bf16> const& rounded) { attend_back_in_bf16(ctx, a, rounded, compute); });
}

}  // namespace calm::detail
