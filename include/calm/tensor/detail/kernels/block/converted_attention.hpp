#pragma once
// Attention's backward in another type than that of its rows: they are converted through ctx.workspace.

#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

// Calls back(the rows in T), and converts dq, dk and dv to the type of the rows.
template <class T, device_memory Backend, class Stored, class Back>
void attend_back_converted(context<Backend>& ctx, attention_shape const& a, attention_gradients<Stored> const& of,
                           Back const& back) {
    arena_scope const scope(ctx.workspace);
    converted_rows<T, Backend> rows(ctx, a.sequences * a.queries);
    attention_gradients<T> const in{.dq = rows.room(a.q_row),
                                    .dk = rows.room(a.kv_row),
                                    .dv = rows.room(a.kv_row),
                                    .dout = rows.of(of.dout, a.q_row),
                                    .o = rows.of(of.o, a.q_row),
                                    .lse = of.lse,
                                    .q = rows.of(of.q, a.q_row),
                                    .k = rows.of(of.k, a.kv_row),
                                    .v = rows.of(of.v, a.kv_row)};
    back(in);
    rows.put(of.dq, in.dq, a.q_row);
    rows.put(of.dk, in.dk, a.kv_row);
    rows.put(of.dv, in.dv, a.kv_row);
}

}  // namespace calm::detail
