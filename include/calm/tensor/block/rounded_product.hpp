#pragma once
// Products of a device, whose factors may be rounded to bf16 first: by a kernel, into scratch.

#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/block/few_rows.hpp"
#include "calm/tensor/block/matmul.hpp"
#include "calm/tensor/group.hpp"

namespace calm::detail {

// y = a matrix x (rows, columns), rounded. A row of y is whole groups of 16 bytes, zeros behind the columns: so tensor
// cores read it.
struct rounded_matrix {
    static constexpr index_t each = 8;  // numbers of a group
    bf16* y;
    float const* x;
    index_t rows, columns, x_stride;

    [[nodiscard]] CALM_HD index_t row_groups() const { return (columns + each - 1) / each; }
    [[nodiscard]] CALM_HD index_t y_stride() const { return row_groups() * each; }
    [[nodiscard]] CALM_HD index_t groups() const { return rows * row_groups(); }

    // Writes group i of y.
    CALM_HD void round(index_t i) const {
        index_t const row = i / row_groups();
        index_t const column = i % row_groups() * each;
        float const* const from = x + row * x_stride + column;
        group<float, each> numbers(0.0F);
        if (column + each <= columns)
            numbers = load_group<float, each>(from);
        else
            for (int l = 0; l < each; ++l)  // of a size that is known: they stay in registers
                if (column + l < columns) numbers.lane[l] = from[l];
        store_group(y + i * each, numbers);
    }
};

// Rounds N matrices, a thread a group of one of them.
template <int N> struct round_kernel {
    static constexpr int threads = 256;
    struct shared {};
    rounded_matrix of[N];
    [[nodiscard]] index_t blocks() const {
        index_t groups = 0;
        for (auto const& each : of) groups += each.groups();
        return blocks_for(groups, threads);
    }
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t i = block * threads + t;
            for (auto const& each : of) {
                if (i >= 0 && i < each.groups()) each.round(i);
                i -= each.groups();
            }
        });
    }
};

// Of a factor (rows, columns) as the product sees it; y in memory that is taken.
template <class Backend>
rounded_matrix rounded_factor(arena<Backend>& memory, float const* x, index_t rows, index_t columns, index_t stride,
                              bool is_transposed) {
    rounded_matrix m{nullptr, x, is_transposed ? columns : rows, is_transposed ? rows : columns, stride};
    m.y = memory.template take<bf16>(extents<dyn>(m.groups() * rounded_matrix::each)).data();
    return m;
}

// A device with a library of products has an overload of its own.
template <device_memory Backend, class T, class W>
void stored_product(context<Backend> const& ctx, product<T, W, W> const& p) {
    block_product(ctx, p);
}

// The product of the rounded factors.
template <device_memory Backend> void rounded_product(context<Backend>& ctx, product<float> const& p) {
    arena_scope const scope(ctx.scratch);
    auto const a = rounded_factor(ctx.scratch, p.a, p.m, p.k, p.lda, p.a_transposed);
    auto const b = rounded_factor(ctx.scratch, p.b, p.k, p.n, p.ldb, p.b_transposed);
    round_kernel<2> const kernel{{a, b}};
    launch(ctx, kernel.blocks(), kernel);
    stored_product(ctx, product<float, bf16, bf16>{p.m, p.n, p.k, p.c, p.ldc, a.y, a.y_stride(), p.a_transposed, b.y,
                                                   b.y_stride(), p.b_transposed, p.accumulates, p.bias});
}

// A product of so few rows stays in fp32: to round the other factor takes longer than to read it.
inline constexpr index_t few_rows_of_a_device = 64;

template <device_memory Backend, class T> void gemm(context<Backend>& ctx, product<T> const& p) {
    if constexpr (std::is_same_v<T, float>)
        if (ctx.products_in_bf16 && p.m > few_rows_of_a_device) return rounded_product(ctx, p);
    if (goes_by_warps(p)) return product_by_warps(ctx, p);
    stored_product(ctx, p);
}

}  // namespace calm::detail
