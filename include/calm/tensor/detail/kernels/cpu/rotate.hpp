#pragma once
// Rotary embeddings in packets. Empty under nvcc.

#ifndef __CUDACC__

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/expr/elementwise.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

// Rotates every head of x (rows, width) in place, at positions from to.first on.
template <class T> void run_rotate(context<cpu>& ctx, T* x, rotation const& to) {
    index_t const half = to.head_size / 2;
    arena_scope const scope(ctx.workspace);
    auto const table = ctx.workspace.template take<T>(extents<dyn, dyn, dyn>(to.period, 2, half));  // cos, sin
    auto const turns = ctx.workspace.template take<float>(extents<dyn>(half));
    if (ctx.is_dry_run()) return;
    for (index_t i = 0; i < half; ++i) turns[i] = to.frequency(i);
    ctx.parallel_ranges(to.period, 64, [&](index_t begin, index_t end) {
        for (index_t p = begin; p < end; ++p)
            for (index_t i = 0; i < half; ++i) {
                auto const angle = rotation::at(to.first + p, turns[i]);
                table[(p * 2) * half + i] = static_cast<T>(angle.cosine);
                table[(p * 2 + 1) * half + i] = static_cast<T>(to.direction * static_cast<double>(angle.sine));
            }
    });
    ctx.parallel_ranges(to.rows, 64, [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            T const* const c = table.data() + (r % to.period) * 2 * half;
            T const* const s = c + half;
            for (T* a = x + r * to.width; a < x + (r + 1) * to.width; a += to.head_size)
                for_pieces<T>(0, half, [&]<class V>(index_t i) {
                    V const u = load<V>(a + i);
                    V const w = load<V>(a + half + i);
                    store(a + i, u * load<V>(c + i) - w * load<V>(s + i));
                    store(a + half + i, w * load<V>(c + i) + u * load<V>(s + i));
                });
        }
    });
}
// Rotates to.period new rows of each sequence.
template <class T>
void run_rotate(context<cpu>& ctx, T* x, rotation const& to, mirrored_span<cached_sequence, cpu> const& sequences) {
    rotation one = to;
    one.rows = to.period;
    for (auto const& of : sequences.here) {
        one.first = of.length;
        run_rotate(ctx, x, one);
        x += one.rows * one.width;
    }
}

}  // namespace calm::detail

#endif
