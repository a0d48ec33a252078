#pragma once
// Products of block backends with weights in bf16. Few rows read the weights as they are. For many rows, a device
// splits A into three bf16 parts; elsewhere a kernel converts the weights to fp32 in ctx.workspace.

#include "calm/base/bf16.hpp"
#include "calm/tensor/detail/kernels/block/rounded_product.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/kernels/block/skinny_product.hpp"

namespace calm::detail {

// The product with another second factor of the same strides.
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
            p.addend};
}

// y (3, groups of x): x rounded to bf16, the rounded remainder, and the rounded remainder of that. Their sum is exactly
// x unless |x| is below 2^-110. One thread per group.
struct split_kernel {
    static constexpr int threads = 256;
    struct shared {};
    rounded_matrix x;
    [[nodiscard]] index_t blocks() const { return blocks_for(x.groups(), threads); }
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        constexpr auto each = static_cast<int>(rounded_matrix::each);
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i >= x.groups()) return;
            auto left = x.numbers(i);
            for (int part = 0; part < 3; ++part) {
                store_group(x.y + (part * x.groups() + i) * each, left);
                for (float& number : left.lane) {
                    auto const stored = static_cast<float>(bf16(number));
                    bool const is_finite = stored - stored == 0.0F;  // else the first part says all
                    number = is_finite ? number - stored : 0.0F;
                }
            }
        });
    }
};

// A B for many rows as the sum of three bf16 products with fp32 sums: as accurate as fp32, on tensor cores, and B is
// read as it is stored. The smallest part comes first.
template <device_memory Backend> void split_product(context<Backend>& ctx, product<float, bf16> const& p) {
    arena_scope const scope(ctx.workspace);
    rounded_matrix parts{nullptr, p.a, p.m, p.k, p.lda};
    index_t const size = parts.groups() * rounded_matrix::each;
    parts.y = ctx.workspace.template take<bf16>(extents<dyn>(3 * size)).data();
    launch(ctx, split_kernel{parts}.blocks(), split_kernel{parts});
    product<float, bf16, bf16> of_part{
        p.m, p.n, p.k, p.c, p.ldc, nullptr, parts.y_stride(), false, p.b, p.ldb, p.b_transposed, p.accumulates, p.bias};
    of_part.addend = p.addend;
    for (int part = 2; part >= 0; --part) {
        of_part.a = parts.y + part * size;
        product_in_groups(ctx, of_part);
        of_part.accumulates = true;
        of_part.bias = of_part.addend = nullptr;
    }
}

// In bf16 where the device multiplies in bf16; else by three parts; else with B converted to fp32. The converted B
// keeps its strides, so that a library chooses the same algorithm.
template <block_backend Backend> void gemm(context<Backend>& ctx, product<float, bf16> const& p) {
    if constexpr (device_memory<Backend>) {
        auto in_bf16 = with_second<float>(p, nullptr);
        in_bf16.b_rounded = p.b;
        if (has_rounded(p) || (ctx.products_in_bf16 && p.m > skinny_rows_of_a_device))
            return rounded_product(ctx, in_bf16);
    }
    if (is_skinny_on_device(p)) return launch_skinny_product(ctx, p);
    if constexpr (device_memory<Backend>)
        if (p.m > most_skinny_rows && !p.a_transposed && p.ldb % rounded_matrix::each == 0 && p.k > 0)
            return split_product(ctx, p);
    arena_scope const scope(ctx.workspace);
    index_t const rows = p.b_transposed ? p.n : p.k;
    auto const b = ctx.workspace.template take<float>(extents<dyn>(rows * p.ldb));
    index_t const columns = p.b_transposed ? p.k : p.n;
    bool const is_empty = rows == 0 || columns == 0;
    run_copy(ctx, b.data(), p.b, is_empty ? 0 : (rows - 1) * p.ldb + columns);  // with the gaps between rows
    gemm(ctx, with_second<float>(p, static_cast<float const*>(b.data())));
}

}  // namespace calm::detail
