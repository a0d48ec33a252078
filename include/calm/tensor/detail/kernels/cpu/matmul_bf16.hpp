#pragma once
// Products whose factors are both rounded to bf16 as they are packed, with fp32 sums. They are divided as in
// detail/kernels/cpu/matmul.hpp, with a pair of values as one element and so half the depth.

#include <algorithm>
#include <bit>
#include <cstring>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/detail/kernels/cpu/bf16_pairs.hpp"
#include "calm/tensor/detail/kernels/cpu/panels.hpp"
#include "calm/tensor/detail/kernels/cpu/parts.hpp"
#include "calm/tensor/detail/kernels/cpu/tile.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

// Packs rows of A or columns of B that are stored by depth: x (depth, count), with row stride `stride`. For row i <
// width, out[l out_stride + i] is the pair of values 2 l and 2 l + 1. Zeros follow from `count` on and past the depth.
inline void pack_pairs_by_depth(bf16_pair* out, index_t out_stride, index_t width, float const* x, index_t stride,
                                index_t count, index_t depth) {
    for (index_t l = 0; l < depth; l += 2, x += 2 * stride, out += out_stride)
        for (index_t i = 0; i < width; i += pairs_in_a_register) {
            native_floats const second = l + 1 < depth ? some_of(x + stride + i, count - i) : native_floats{};
            native_pairs const pairs = pairs_of(some_of(x + i, count - i), second);
            std::memcpy(out + i, &pairs, sizeof(pairs));
        }
}

// Packs x (count, depth), stored row by row, into the same layout.
inline void pack_turned_pairs(bf16_pair* out, index_t out_stride, index_t width, float const* x, index_t stride,
                              index_t count, index_t depth) {
    constexpr int square = static_cast<int>(pairs_in_a_register);
    for (index_t i = 0; i < width; i += square)
        for (index_t l = 0; l < depth; l += 2 * square) {
            native_floats v[square];
            unrolled<square>([&](auto r) __attribute__((always_inline)) {
                v[r] = i + r < count ? std::bit_cast<native_floats>(pairs_from(x + (i + r) * stride + l, depth - l))
                                     : native_floats{};
            });
            turn(v);
            index_t const kept = std::min<index_t>(square, (depth - l + 1) / 2);
            for (index_t q = 0; q < kept; ++q) std::memcpy(out + (l / 2 + q) * out_stride + i, &v[q], sizeof(v[q]));
        }
}

// Packs x (count, depth) without transposing it: out (count, out_stride), whole registers per row.
inline void pack_pairs_by_rows(bf16_pair* out, index_t out_stride, float const* x, index_t stride, index_t count,
                               index_t depth) {
    for (index_t i = 0; i < count; ++i)
        for (index_t l = 0; l < depth; l += 2 * pairs_in_a_register) {
            native_pairs const pairs = pairs_from(x + i * stride + l, depth - l);
            std::memcpy(out + i * out_stride + l / 2, &pairs, sizeof(pairs));
        }
}

// A product of pairs, divided as the product of floats with half the depth. Rows of A are packed by the task that
// multiplies them or, if several tasks have the same rows, in advance.
class product_of_pairs {
public:
    explicit product_of_pairs(product<float> const& p) : p_(p), in_pairs_(halved(p)), parts_(in_pairs_) {
        if (shares_rows())
            parts_.depth = std::min(parts_.depth, std::max<index_t>(1, 16 / blocks(p.n).down) * depth_at_once);
    }

    void multiply(context<cpu>& ctx) const {
        arena_scope const scope(ctx.workspace);
        auto const b = ctx.workspace.template take<bf16_pair>(extents<dyn>(parts_.packed));
        auto const a = ctx.workspace.template take<bf16_pair>(
            extents<dyn>(shares_rows() ? blocks(p_.n).down * blocks_for(parts_.depth, depth_at_once) * block_size : 0));
        for (index_t l = 0; l < in_pairs_.k; l += parts_.depth)
            for (index_t column = 0; column < p_.n; column += parts_.columns) {
                part const one{l,        std::min(parts_.depth, in_pairs_.k - l),
                               column,   std::min(parts_.columns, p_.n - column),
                               a.data(), b.data()};
                if (shares_rows() && column == 0) pack_a(ctx, one);
                pack_b(ctx, one);
                multiply(ctx, one);
            }
    }

private:
    // Packed columns of B, in pairs, for a part of the depth; and the rows of A, if packed in advance.
    struct part {
        index_t first_depth, depth;
        index_t first_column, columns;
        bf16_pair* a;
        bf16_pair* b;
    };
    static constexpr auto width = tile_width<float>;
    static constexpr index_t tiles_high = 8;  // rows of A that a task packs, in tiles: they stay in the L2 cache
    // Size of a block of rows, packed, for depth_at_once; a multiple of registers.
    static constexpr index_t block_size = (tiles_high * tile_height + pairs_in_a_register) * depth_at_once;

    static product<float> halved(product<float> p) {
        p.k = (p.k + 1) / 2;
        return p;
    }
    // Number of values of the depth in `pairs` pairs from pair `first` on.
    [[nodiscard]] index_t numbers(index_t first, index_t pairs) const { return std::min(2 * pairs, p_.k - 2 * first); }
    [[nodiscard]] blocks_of_c<float> blocks(index_t columns) const { return {p_.m, columns, in_pairs_.k, tiles_high}; }
    [[nodiscard]] bool shares_rows() const { return blocks(std::min(p_.n, parts_.columns)).across > 1; }

    void pack_a(context<cpu>& ctx, part const& one) const {
        auto const cut = blocks(p_.n);
        index_t const deep = blocks_for(one.depth, depth_at_once);
        ctx.parallel(cut.down * deep, [&](index_t task) {
            index_t const row = task / deep * cut.high, l = task % deep * depth_at_once;
            rows_of(one.a + task * block_size, one.first_depth + l, std::min(depth_at_once, one.depth - l), row,
                    std::min(cut.high, p_.m - row));
        });
    }
    void pack_b(context<cpu>& ctx, part const& one) const {
        index_t const l = 2 * one.first_depth;
        index_t const depth = numbers(one.first_depth, one.depth);
        ctx.parallel(blocks_for(one.columns, width), [&](index_t q) {
            index_t const column = one.first_column + q * width;
            index_t const count = std::min(width, one.columns - q * width);
            auto* const panel = one.b + q * width * one.depth;
            if (p_.b_transposed)
                pack_turned_pairs(panel, width, width, p_.b + column * p_.ldb + l, p_.ldb, count, depth);
            else
                pack_pairs_by_depth(panel, width, width, p_.b + l * p_.ldb + column, p_.ldb, count, depth);
        });
    }
    void multiply(context<cpu>& ctx, part const& one) const {
        auto const cut = blocks(one.columns);
        index_t const deep = blocks_for(one.depth, depth_at_once);
        cut.in_parallel(ctx, p_.m, one.columns, [&](index_t row, index_t row_end, index_t column, index_t column_end) {
            alignas(memory_alignment) bf16_pair own[static_cast<std::size_t>(block_size)];
            for (index_t l = 0; l < one.depth; l += depth_at_once) {
                index_t const depth = std::min(depth_at_once, one.depth - l);
                auto const a = shares_rows()
                                   ? packed_rows(one.a + (row / cut.high * deep + l / depth_at_once) * block_size,
                                                 depth, row_end - row)
                                   : rows_of(own, one.first_depth + l, depth, row, row_end - row);
                for (index_t at = column; at < column_end; at += width)
                    multiply_columns(one, a, l, depth, row, row_end, at);
            }
        });
    }
    // Rows row .. row_end of C, in one tile's columns from column `at` of the part on, for the depth from its pair l
    // on.
    void multiply_columns(part const& one, rows_of_a<bf16_pair> const& a, index_t l, index_t depth, index_t row,
                          index_t row_end, index_t at) const {
        columns_of_b<bf16_pair> const b{one.b + at * one.depth + l * width, width};
        for (index_t i = row; i < row_end; i += tile_height) {
            auto to = tile_at(p_, one.first_depth + l, i, one.first_column + at);
            to.rows = std::min<index_t>(tile_height, row_end - i);
            multiply_rows(depth, {a.data + (i - row) * a.row, a.row, a.depth}, b, to);
        }
    }
    // `count` rows of A from pair l on, packed into `packed`. A tile may also read what follows them, but discards it.
    rows_of_a<bf16_pair> rows_of(bf16_pair* packed, index_t l, index_t depth, index_t row, index_t count) const {
        auto const rows = packed_rows(packed, depth, count);
        if (p_.a_transposed)
            pack_pairs_by_depth(packed, rows.depth, rows.depth, p_.a + 2 * l * p_.lda + row, p_.lda, count,
                                numbers(l, depth));
        else
            pack_pairs_by_rows(packed, rows.row, p_.a + row * p_.lda + 2 * l, p_.lda, count, numbers(l, depth));
        return rows;
    }
    // Their layout there.
    [[nodiscard]] rows_of_a<bf16_pair> packed_rows(bf16_pair const* packed, index_t depth, index_t count) const {
        index_t const all = blocks_for(p_.a_transposed ? count : depth, pairs_in_a_register) * pairs_in_a_register;
        return p_.a_transposed ? rows_of_a<bf16_pair>{packed, 1, all} : rows_of_a<bf16_pair>{packed, all, 1};
    }

    product<float> const& p_;
    product<float> in_pairs_;
    product_parts<float> parts_;
};

// A factor of which the context has a rounded copy is read from the copy; packing it is then exact.
inline void gemm_in_bf16(context<cpu>& ctx, product<float> const& p) {
    auto const known = [&](float const* x) {
        auto const* const copy = ctx.copies != nullptr ? ctx.copies->of(x) : nullptr;
        return copy != nullptr ? copy : x;
    };
    product<float> of_copies = p;
    of_copies.a = known(p.a);
    of_copies.b = known(p.b);
    product_of_pairs(of_copies).multiply(ctx);
}

}  // namespace calm::detail
