#pragma once
// Attention in bf16 on a device, around what computes its graphs (attention_graph.hpp): kernels round what it reads
// into scratch, and widen the gradients that it wrote.

#include "calm/tensor/attention_graph.hpp"
#include "calm/tensor/block/rounded_product.hpp"
#include "calm/tensor/elementwise.hpp"

namespace calm::detail {

// Memory for attention of one shape, in ctx.scratch.
template <device_memory Backend> class rounded_attention {
public:
    rounded_attention(context<Backend>& ctx, attention_shape const& a) : ctx_(ctx), a_(a) {}

    attention_memory memory;  // where the parts are

    // Parts = matrices of the shape's rows, rounded.
    template <int N> void round(attention_part const (&parts)[N], float const* const (&from)[N]) {
        round_kernel<N> kernel{};
        for (int i = 0; i < N; ++i)
            kernel.of[i] = {room(parts[i]), from[i], a_.sequences * a_.queries, width(parts[i]), width(parts[i])};
        launch(ctx_, kernel.blocks(), kernel);
    }
    // to = a part, in fp32.
    void widen(float* to, attention_part part) const {
        run_evaluate(ctx_, tree::input<bf16>{static_cast<bf16 const*>(memory[part])}, to, size(part));
    }
    // For a part in bf16, which the graph writes.
    bf16* room(attention_part part) { return take<bf16>(part, size(part)); }
    // For one of n numbers.
    template <class T> T* take(attention_part part, index_t n) {
        T* const there = ctx_.scratch.template take<T>(extents<dyn>(n)).data();
        memory[part] = there;
        return there;
    }

private:
    [[nodiscard]] index_t width(attention_part part) const {  // of a row
        using enum attention_part;
        bool const of_keys = part == k || part == v || part == dk || part == dv;
        return (of_keys ? a_.kv_heads : a_.heads) * a_.head_size;
    }
    [[nodiscard]] index_t size(attention_part part) const { return a_.sequences * a_.queries * width(part); }

    context<Backend>& ctx_;
    attention_shape const& a_;
};

// o and lse from q, k and v, whose heads are of whole groups of 16 bytes in bf16: compute(memory), which may take of
// ctx.scratch, is asked for the forward graph.
template <device_memory Backend, class Compute>
void attend_in_bf16(context<Backend>& ctx, attention_shape const& a, bf16* o, float* lse, float const* q,
                    float const* k, float const* v, Compute const& compute) {
    using part = attention_part;
    arena_scope const scope(ctx.scratch);
    rounded_attention with(ctx, a);
    with.round({part::q, part::k, part::v}, {q, k, v});
    with.memory[part::o] = o;
    with.memory[part::lse] = lse;
    compute(with.memory);
}

// dq, dk and dv from what it read and wrote, and dout; compute(memory) is asked for the backward graph.
template <device_memory Backend, class Compute>
void attend_back_in_bf16(context<Backend>& ctx, attention_shape const& a, float* dq, float* dk, float* dv,
                         float const* dout, bf16 const* o, float const* lse, float const* q, float const* k,
                         float const* v, Compute const& compute) {
    using part = attention_part;
    arena_scope const scope(ctx.scratch);
    rounded_attention with(ctx, a);
    with.round({part::q, part::k, part::v, part::dout}, {q, k, v, dout});
    with.memory[part::o] = const_cast<bf16*>(o);  // which it only reads
    for (auto const each : {part::dq, part::dk, part::dv}) with.room(each);
    if (a.group() > 1)
        for (auto const each : {part::wide_dk, part::wide_dv}) with.room(each);
    with.template take<float>(part::delta, a.sequences * a.queries * a.heads);
    with.memory[part::lse] = const_cast<float*>(lse);  // the same
    compute(with.memory);
    with.widen(dq, part::dq);
    with.widen(dk, part::dk);
    with.widen(dv, part::dv);
}

}  // namespace calm::detail
