#pragma once
// Normalisation of rows in packets, where expression trees are slower. At 128 columns a tree takes 1.4 times as long
// for LayerNorm, because its mean goes through memory. No tree computes dx and the sums over rows in one pass: backward
// takes 1.6 times as long for RMSNorm, 4 for LayerNorm (bench/norms).

#include "calm/tensor/detail/kernels/cpu/rows.hpp"
#include "calm/tensor/detail/ops/norm_operands.hpp"
#include "calm/tensor/expr/ops.hpp"

namespace calm::detail {

// Writes dx, and adds the gain's gradient to dw.
template <class T> void rms_norm_row_back(T* dx, T* dw, T const* dy, T const* x, T const* w, T r, index_t n) {
    T const s =
        sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(dy + i) * load<V>(w + i) * load<V>(x + i); });
    T const c = s * r * r * r / number<T>(n);
    for_pieces<T>(0, n, [&]<class V>(index_t i) {
        V const g = load<V>(dy + i);
        V const v = load<V>(x + i);
        store(dw + i, load<V>(dw + i) + g * v * splat<V>(r));
        store(dx + i, g * load<V>(w + i) * splat<V>(r) - v * splat<V>(c));
    });
}

// y (n) = (x - mean) * r * w + b with r = 1 / sqrt(variance + eps).
template <class T>
void layer_norm_row(T* y, T& mean_of_row, T& r_of_row, T const* x, T const* w, T const* b, index_t n, double eps) {
    T const mean = sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(x + i); }) / number<T>(n);
    T const variance = sum_packets<T>(n,
                                      [&]<class V>(index_t i) -> V {
                                          V const d = load<V>(x + i) - splat<V>(mean);
                                          return d * d;
                                      }) /
                       number<T>(n);
    T const r = op::reciprocal_root::value(variance + static_cast<T>(eps));
    for_pieces<T>(0, n, [&]<class V>(index_t i) {
        store(y + i, (load<V>(x + i) - splat<V>(mean)) * splat<V>(r) * load<V>(w + i) + load<V>(b + i));
    });
    mean_of_row = mean;
    r_of_row = r;
}

// Writes dx (n) of a row, and adds the gradients of gain and bias to dw and db.
template <class T> void layer_norm_row_back(T* dx, T* dw, T* db, T const* dy, norm_forward<T> const& all, index_t row) {
    index_t const n = all.n;
    T const* const x = all.x + row * n;
    T const* const w = all.w;
    T const mean = all.mean[row], r = all.r[row];
    auto const normal = [&]<class V>(index_t i) -> V { return (load<V>(x + i) - splat<V>(mean)) * splat<V>(r); };
    T const s = sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(dy + i) * load<V>(w + i); });
    T const t = sum_packets<T>(n, [&]<class V>(index_t i) -> V {
        return load<V>(dy + i) * load<V>(w + i) * normal.template operator()<V>(i);
    });
    T const a = s / number<T>(n);
    T const c = t / number<T>(n);
    for_pieces<T>(0, n, [&]<class V>(index_t i) {
        V const g = load<V>(dy + i);
        V const h = normal.template operator()<V>(i);
        store(dw + i, load<V>(dw + i) + g * h);
        store(db + i, load<V>(db + i) + g);
        store(dx + i, (g * load<V>(w + i) - splat<V>(a) - h * splat<V>(c)) * splat<V>(r));
    });
}

template <class T> void run_rms_norm_back(context<cpu>& ctx, T* dx, T* dw, T const* dy, norm_forward<T> const& all) {
    index_t const n = all.n;
    reduce_rows(ctx, all.rows, n, dw, [&](index_t i, T* dw_of_chunk) {
        rms_norm_row_back(dx + i * n, dw_of_chunk, dy + i * n, all.x + i * n, all.w, all.r[i], n);
    });
}
template <class T> void run_layer_norm(context<cpu>& ctx, T* y, T* mean, T* r, layer_norm_input<T> const& in) {
    index_t const n = in.n;
    ctx.parallel_ranges(in.rows, row_chunk, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            layer_norm_row(y + i * n, mean[i], r[i], in.x + i * n, in.w, in.b, n, in.eps);
    });
}
template <class T>
void run_layer_norm_back(context<cpu>& ctx, T* dx, T* dw, T* db, T const* dy, norm_forward<T> const& all) {
    index_t const n = all.n;
    arena_scope const scope(ctx.workspace);
    auto const both = ctx.workspace.template take<T>(extents<dyn>(2 * n));  // dw, db
    run_fill(ctx, both.data(), 2 * n, T{});
    reduce_rows(ctx, all.rows, 2 * n, both.data(),
                [&](index_t i, T* d) { layer_norm_row_back(dx + i * n, d, d + n, dy + i * n, all, i); });
    if (ctx.is_dry_run()) return;
    add_into(dw, both.data(), n);
    add_into(db, both.data() + n, n);
}

}  // namespace calm::detail
