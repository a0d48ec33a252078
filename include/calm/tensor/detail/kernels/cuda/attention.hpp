#pragma once
// Attention on a GPU: by cuDNN if the context multiplies in bf16, else by the block kernels. These also compute what
// cuDNN does not support, and the context counts it.

#if defined(__CUDACC__) && __has_include(<cudnn.h>)

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "calm/tensor/detail/device/cuda/launch.hpp"
#include "calm/tensor/detail/kernels/block/rounded_attention.hpp"
#include "calm/tensor/ops/attention.hpp"

namespace calm::detail {

// cuDNN's plans for a shape and for the caller's memory in `given`; null if the block kernels are to compute it.
inline attention_plans::both const* plans_in_bf16(context<cuda>& ctx, attention_shape const& a,
                                                  std::initializer_list<void const*> given) {
    if (!ctx.products_in_bf16 || a.sequences == 0) return nullptr;
    bool const aligned = std::ranges::all_of(
        given, [](void const* p) { return reinterpret_cast<std::uintptr_t>(p) % cudnn_alignment == 0; });
    if (aligned)
        if (auto const& plans = ctx.attention().of(a, ctx.queue())) return &*plans;
    if (!ctx.is_dry_run()) ctx.attention().count_unsupported();
    return nullptr;
}

// A function that runs a plan, with workspace from ctx.workspace.
inline auto by_plan(context<cuda>& ctx, attention_plan const& plan) {
    return [&](attention_memory const& memory) {
        auto const room = ctx.workspace.template take<std::byte>(extents<dyn>(plan.workspace()));
        if (ctx.is_dry_run() || !ctx.order().launches("attention by cuDNN", plan.workspace())) return;
        ctx.attention().run(plan, memory, room.data(), ctx.queue());
        check_launched(ctx, typeid(attention_plan));
    };
}

inline void run_attention(context<cuda>& ctx, attention_shape const& a, bf16* o, float* lse, bf16 const* q,
                          bf16 const* k, bf16 const* v) {
    if (auto const* const plans = plans_in_bf16(ctx, a, {o, lse, q, k, v}))
        attend_in_bf16(ctx, a, o, lse, q, k, v, by_plan(ctx, plans->forward));
    else
        run_attention<cuda>(ctx, a, o, lse, q, k, v);
}
inline void run_attention(context<cuda>& ctx, attention_shape const& a, float* o, float* lse, float const* q,
                          float const* k, float const* v) {
    if (auto const* const plans = plans_in_bf16(ctx, a, {lse}))
        attend_in_bf16(ctx, a, o, lse, q, k, v, by_plan(ctx, plans->forward));
    else
        run_attention<cuda, float>(ctx, a, o, lse, q, k, v);
}

inline void run_attention_back(context<cuda>& ctx, attention_shape const& a, attention_gradients<bf16> const& of) {
    if (auto const* const plans = plans_in_bf16(ctx, a, {of.dq, of.dk, of.dv, of.dout, of.o, of.lse, of.q, of.k, of.v}))
        attend_back_in_bf16(ctx, a, of, by_plan(ctx, plans->backward));
    else
        run_attention_back<cuda>(ctx, a, of);
}
inline void run_attention_back(context<cuda>& ctx, attention_shape const& a, attention_gradients<float> const& of) {
    if (auto const* const plans = plans_in_bf16(ctx, a, {of.lse}))
        attend_back_in_bf16(ctx, a, of, by_plan(ctx, plans->backward));
    else
        run_attention_back<cuda, float>(ctx, a, of);
}

}  // namespace calm::detail

#endif
