#pragma once
// Products on a device, whose factors may first be rounded to bf16: by a kernel, into ctx.workspace.

#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/activations.hpp"
#include "calm/tensor/detail/core/group.hpp"
#include "calm/tensor/detail/kernels/block/matmul.hpp"
#include "calm/tensor/detail/kernels/block/skinny_product.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"

namespace calm::detail {

// y = a matrix x (rows, columns), rounded to bf16. Rows of y are zero-padded to whole 16-byte groups, as tensor cores
// need them. Without x there are no rows.
struct rounded_matrix {
    static constexpr index_t each = 8;  // elements of a group
    bf16* y;
    float const* x;
    index_t rows, columns, x_stride;

    [[nodiscard]] CALM_HD index_t row_groups() const { return (columns + each - 1) / each; }
    [[nodiscard]] CALM_HD index_t y_stride() const { return row_groups() * each; }
    [[nodiscard]] CALM_HD index_t groups() const { return rows * row_groups(); }
    // Whether x has rows of whole groups without gaps too: then it counts as one row.
    [[nodiscard]] CALM_HD bool is_one_row() const { return x_stride == columns && columns % each == 0; }

    // Writes group i of y.
    CALM_HD void round(index_t i) const { store_group(y + i * each, numbers(i)); }
    // Elements of group i in x, zeros past the columns.
    [[nodiscard]] CALM_HD group<float, each> numbers(index_t i) const {
        if (is_one_row()) return load_group<float, each>(x + i * each);
        index_t const row = i / row_groups();
        index_t const column = i % row_groups() * each;
        float const* const from = x + row * x_stride + column;
        if (column + each <= columns) return load_group<float, each>(from);
        group<float, each> first(0.0F);
        for (int l = 0; l < each; ++l)  // a constant trip count: they stay in registers
            if (column + l < columns) first.lane[l] = from[l];
        return first;
    }
};

// Rounds N matrices, one group per thread.
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
        b.phase([&](int t) { round_from<0>(block * threads + t); });
    }

private:
    // Rounds group i, counted from matrix I on. I is a compile-time constant, so that a device reads of[I] from the
    // kernel's arguments instead of a copy in local memory.
    template <int I> CALM_HD void round_from(index_t i) const {
        if constexpr (I < N) {
            if (i < of[I].groups()) return of[I].round(i);
            round_from<I + 1>(i - of[I].groups());
        }
    }
};

// A factor of a product in bf16: already rounded, or to be rounded into memory taken from an arena.
struct rounded_factor {
    bf16 const* x;
    index_t stride;
    rounded_matrix missing{};  // still to be rounded, or without rows

    // The factor is (rows, columns) as the product sees it.
    template <class Backend>
    rounded_factor(arena<Backend>& memory, bf16 const* rounded, float const* full, index_t rows, index_t columns,
                   index_t full_stride, bool is_transposed) :
        x(rounded),
        stride(full_stride) {
        if (rounded != nullptr) return;
        missing = {nullptr, full, is_transposed ? columns : rows, is_transposed ? rows : columns, full_stride};
        missing.y = memory.template take<bf16>(extents<dyn>(missing.groups() * rounded_matrix::each)).data();
        x = missing.y;
        stride = missing.y_stride();
    }
};

// Overloaded where a device has a matrix library.
template <device_memory Backend, class T, class W>
void stored_product(context<Backend> const& ctx, product<T, W, W> const& p) {
    block_product(ctx, p);
}

// Product of bf16 factors whose rows begin at 16-byte addresses, but whose columns or depth are not whole 16-byte
// groups: split into whole groups and a remainder. Tensor cores read groups; otherwise a library computes the whole
// product many times more slowly (H100: the logits of 128,257 tokens).
template <device_memory Backend, class T>
void product_in_groups(context<Backend> const& ctx, product<T, bf16, bf16> const& p) {
    constexpr index_t group = rounded_matrix::each, many = 64 * group;
    if (p.n > many && p.n % group != 0 && p.ldc % group == 0) {
        auto most = p, left = p;
        most.n = p.n / group * group;
        left.n = p.n - most.n;
        left.c += most.n;
        left.b += p.b_transposed ? most.n * p.ldb : most.n;
        if (p.bias != nullptr) left.bias += most.n;
        if (p.addend != nullptr) left.addend += most.n;
        product_in_groups(ctx, most);
        return product_in_groups(ctx, left);
    }
    bool const is_by_depth = !p.a_transposed || p.b_transposed;  // a factor's rows run along the depth
    if (std::is_same_v<T, float> && is_by_depth && p.k > many && p.k % group != 0 && p.lda % group == 0 &&
        p.ldb % group == 0) {
        auto most = p, left = p;
        most.k = p.k / group * group;
        left.k = p.k - most.k;
        left.a += p.a_transposed ? most.k * p.lda : most.k;
        left.b += p.b_transposed ? most.k : most.k * p.ldb;
        left.accumulates = true;
        left.bias = left.addend = nullptr;
        stored_product(ctx, most);
        return stored_product(ctx, left);
    }
    stored_product(ctx, p);
}

// The product of the rounded factors. If C has no memory in fp32, it and the bias are rounded too.
template <device_memory Backend> void rounded_product(context<Backend>& ctx, product<float> const& p) {
    arena_scope const scope(ctx.workspace);
    auto const known = [&](bf16 const* rounded, float const* full, index_t stride) {
        bool const looks = rounded == nullptr && ctx.copies != nullptr && stride % rounded_matrix::each == 0;
        return looks ? ctx.copies->of(full) : rounded;
    };
    rounded_factor const a(ctx.workspace, known(p.a_rounded, p.a, p.lda), p.a, p.m, p.k, p.lda, p.a_transposed);
    rounded_factor const b(ctx.workspace, known(p.b_rounded, p.b, p.ldb), p.b, p.k, p.n, p.ldb, p.b_transposed);
    rounded_matrix bias{};
    if (p.c == nullptr && p.bias != nullptr)
        bias = {ctx.workspace.template take<bf16>(extents<dyn>(p.n + rounded_matrix::each)).data(), p.bias, 1, p.n,
                p.n};
    round_kernel<3> const kernel{{a.missing, b.missing, bias}};
    if (kernel.blocks() > 0) launch(ctx, kernel.blocks(), kernel);
    auto const multiply = [&]<class T>(T* c, T const* row, T const* addend) {
        product<T, bf16, bf16> rounded{
            p.m, p.n, p.k, c, p.ldc, a.x, a.stride, p.a_transposed, b.x, b.stride, p.b_transposed, p.accumulates, row};
        rounded.addend = addend;
        product_in_groups(ctx, rounded);
    };
    if (p.c != nullptr)
        multiply(p.c, p.bias, p.addend);
    else
        multiply(p.c_rounded, static_cast<bf16 const*>(bias.y), static_cast<bf16 const*>(nullptr));
}

// Whether one of a product's float matrices exists in bf16 only.
template <class W> bool has_rounded(product<float, W> const& p) {
    return (p.a == nullptr && p.a_rounded != nullptr) || (p.b == nullptr && p.b_rounded != nullptr) ||
           (p.c == nullptr && p.c_rounded != nullptr);
}

// In bf16 if the context multiplies in bf16 and there are more than a few rows, or if an operand exists in bf16 only.
template <device_memory Backend, class T> void gemm(context<Backend>& ctx, product<T> const& p) {
    if constexpr (std::is_same_v<T, float>)
        if (has_rounded(p) || (ctx.products_in_bf16 && p.m > skinny_rows_of_a_device)) return rounded_product(ctx, p);
    if (is_skinny_on_device(p)) return launch_skinny_product(ctx, p);
    stored_product(ctx, p);
}

}  // namespace calm::detail
