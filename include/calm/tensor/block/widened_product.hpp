#pragma once
// Products of executors of blocks with weights in bf16: few rows read them as they are, many are multiplied with what a
// kernel widens into scratch.

#include "calm/base/bf16.hpp"
#include "calm/tensor/block/few_rows.hpp"
#include "calm/tensor/block/rounded_product.hpp"
#include "calm/tensor/block/rows.hpp"

namespace calm::detail {

// The same product with another second factor of the same strides.
template <class U, class T, class W> product<T, U> with_second(product<T, W> const& p, U const* b) {
    return {p.m,
            p.n,
            p.k,
            p.c,
            p.ldc,
            p.a,
            p.lda,
            p.a_transposed,
            b,
            p.ldb,
            p.b_transposed,
            p.accumulates,
            p.bias,
            p.a_rounded,
            p.b_rounded,
            p.c_rounded,
            p.plus};
}

// The product of both factors in bf16, where a device multiplies so; else that of B widened. It has the strides that it
// would have in float, so a library chooses the same way.
template <block_executor Backend> void gemm(context<Backend>& ctx, product<float, bf16> const& p) {
    if constexpr (device_memory<Backend>) {
        auto in_bf16 = with_second<float>(p, nullptr);
        in_bf16.b_rounded = p.b;
        if (has_rounded(p) || (ctx.products_in_bf16 && p.m > few_rows_of_a_device))
            return rounded_product(ctx, in_bf16);
    }
    if (goes_by_warps(p)) return product_by_warps(ctx, p);
    arena_scope const scope(ctx.scratch);
    index_t const rows = p.b_transposed ? p.n : p.k;
    auto const b = ctx.scratch.template take<float>(extents<dyn>(rows * p.ldb));
    index_t const columns = p.b_transposed ? p.k : p.n;
    bool const is_empty = rows == 0 || columns == 0;
    run_copy(ctx, b.data(), p.b, is_empty ? 0 : (rows - 1) * p.ldb + columns);  // with what lies between the rows
    gemm(ctx, with_second<float>(p, static_cast<float const*>(b.data())));
}

}  // namespace calm::detail
