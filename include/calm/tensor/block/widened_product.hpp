#pragma once
// Products of executors of blocks with weights in bf16: few rows read them as they are, many are multiplied with what a
// kernel widens into scratch.

#include "calm/base/bf16.hpp"
#include "calm/tensor/block/few_rows.hpp"
#include "calm/tensor/block/rounded_product.hpp"

namespace calm::detail {

// y = a matrix x (rows, columns), both of one stride.
struct widen_kernel {
    static constexpr int threads = 256;
    static constexpr int each = 8;  // numbers of a thread
    struct shared {};
    float* y;
    bf16 const* x;
    index_t rows, columns, stride;

    [[nodiscard]] CALM_HD index_t row_groups() const { return blocks_for(columns, each); }
    [[nodiscard]] index_t blocks() const { return blocks_for(rows * row_groups(), threads); }

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i >= rows * row_groups()) return;
            index_t const first = i % row_groups() * each;
            index_t const at = i / row_groups() * stride;
            if (first + each <= columns)
                store(y + at + first, load<group<float, each>>(x + at + first));
            else
                for (index_t j = first; j < columns; ++j) y[at + j] = x[at + j];
        });
    }
};

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
        bool const stands_so = (p.a == nullptr && p.a_rounded != nullptr) || (p.c == nullptr && p.c_rounded != nullptr);
        if (stands_so || (ctx.products_in_bf16 && p.m > few_rows_of_a_device)) return rounded_product(ctx, in_bf16);
    }
    if (goes_by_warps(p)) return product_by_warps(ctx, p);
    arena_scope const scope(ctx.scratch);
    index_t const rows = p.b_transposed ? p.n : p.k;
    auto const b = ctx.scratch.template take<float>(extents<dyn>(rows * p.ldb));
    widen_kernel const kernel{b.data(), p.b, rows, p.b_transposed ? p.k : p.n, p.ldb};
    launch(ctx, kernel.blocks(), kernel);
    gemm(ctx, with_second<float>(p, static_cast<float const*>(b.data())));
}

}  // namespace calm::detail
