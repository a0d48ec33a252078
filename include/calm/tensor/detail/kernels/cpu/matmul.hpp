#pragma once
// Matrix products on the CPU: the second factor is packed once into panels that threads share, and tiles of C stay in
// registers (Goto and van de Geijn 2008). Under nvcc only declared: another compiler's source file has the definitions.

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

template <class T, class W> void gemm(context<cpu>& ctx, product<T, W> const& p);
// One thread, stack memory only: for small products. Bit-identical to gemm.
template <class T, class W> void serial_gemm(product<T, W> const& p);

}  // namespace calm::detail

#ifndef __CUDACC__

#include <algorithm>
#include <type_traits>

#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/detail/kernels/cpu/panels.hpp"
#include "calm/tensor/detail/kernels/cpu/parts.hpp"
#include "calm/tensor/detail/kernels/cpu/skinny_product.hpp"
#include "calm/tensor/detail/kernels/cpu/tile.hpp"

namespace calm::detail {

// Whether T has packets, and thus products here. Products of other types are in detail/kernels/cpu/eigen.hpp.
template <class T>
concept has_packets = packed<packet<T>>;

// `rows` rows of A, at most a tile's, from row i and depth l on: as stored if some tile has exactly so many rows, else
// copied into `few`, which has room for a tile.
template <class T, class W>
rows_of_a<T> rows_for_tiles(product<T, W> const& p, index_t i, index_t l, index_t depth, index_t rows, T* few) {
    T const* const first = p.a_transposed ? p.a + l * p.lda + i : p.a + i * p.lda + l;
    if (rows % (tile_height / 3) == 0)
        return p.a_transposed ? rows_of_a<T>{first, 1, p.lda} : rows_of_a<T>{first, p.lda, 1};
    if (p.a_transposed) {
        pack_columns<tile_height>(few, 0, first, p.lda, rows, 0, depth);
        return {few, 1, tile_height};
    }
    for (index_t r = 0; r < tile_height; ++r)
        std::copy_n(first + std::min(r, rows - 1) * p.lda, depth, few + r * depth);
    return {few, depth, 1};
}

// Adds rows begin .. end of A times some columns of B, from depth l on. A is never packed: of a transposed A, a tile
// reads part of a cache line per step of the depth, and the L2 cache delivers it in time.
template <class T, class W>
void multiply_columns(product<T, W> const& p, index_t l, index_t depth, columns_of_b<T> const& b, index_t column,
                      index_t begin, index_t end) {
    T few[static_cast<std::size_t>(tile_height * depth_at_once)];
    for (index_t i = begin; i < end; i += tile_height) {
        auto to = tile_at(p, l, i, column);
        to.rows = std::min<index_t>(tile_height, end - i);
        multiply_rows(depth, rows_for_tiles(p, i, l, depth, to.rows, few), b, to);
    }
}

// A product of depth 0: C becomes its start value.
template <class T, class W> void empty_product(product<T, W> const& p) {
    for (index_t row = 0; row < p.m; ++row)
        if (p.bias != nullptr)
            std::copy_n(p.bias, p.n, p.c + row * p.ldc);
        else if (!p.accumulates)
            std::fill_n(p.c + row * p.ldc, p.n, T{});
}

// Whether B is read as stored, provided its type is T: for few rows, packing takes longer than it saves.
template <class T, class W> bool reads_b(product<T, W> const& p) {
    return !p.a_transposed && !p.b_transposed && p.m <= 2 * tile_height;
}
// Whether A^T B can read both factors as stored, by depth. If B's rows are far apart, their cache lines evict each
// other from the L1 cache.
template <class T, class W> bool reads_both(product<T, W> const& p) {
    return p.a_transposed && !p.b_transposed && p.ldb <= 512;
}
// This holds up to so many rows of C; with more, a packed panel in the L1 cache saves more than it costs.
inline constexpr index_t rows_to_read_both = 132;

// At most tile_width columns of B from `column` on, for a part of the depth, as tiles read them: packed into `panel`,
// or as stored.
template <class T, class W>
columns_of_b<T> columns_for_tiles(product<T, W> const& p, T* panel, index_t l, index_t depth, index_t column) {
    index_t const columns = std::min(tile_width<T>, p.n - column);
    if constexpr (std::is_same_v<T, W>)
        if (columns == tile_width<T> && (reads_b(p) || (reads_both(p) && p.m <= rows_to_read_both)))
            return {p.b + l * p.ldb + column, p.ldb};
    if (p.b_transposed)
        pack_turned<tile_width<T>>(panel, p.b + column * p.ldb + l, p.ldb, columns, depth);
    else
        pack_columns<tile_width<T>>(panel, 0, p.b + l * p.ldb + column, p.ldb, columns, 0, depth);
    return {panel, tile_width<T>};
}

template <class T, class W> void serial_gemm(product<T, W> const& p) {
    static_assert(has_packets<T>, "calm::matmul: products of this type are Eigen's: include calm/eigen.hpp");
    if (is_skinny(p)) return skinny_product(p);
    if (p.k == 0) return empty_product(p);
    alignas(memory_alignment) T panel[static_cast<std::size_t>(tile_width<T> * depth_at_once)];
    for (index_t l = 0; l < p.k; l += depth_at_once) {
        index_t const depth = std::min(depth_at_once, p.k - l);
        for (index_t column = 0; column < p.n; column += tile_width<T>)
            multiply_columns(p, l, depth, columns_for_tiles(p, panel, l, depth, column), column, 0, p.m);
    }
}

template <class T, class W> product<T, W> slice_columns(product<T, W> p, index_t begin, index_t end) {
    p.n = end - begin;
    p.c += begin;
    p.b += p.b_transposed ? begin * p.ldb : begin;
    if (p.bias != nullptr) p.bias += begin;
    return p;
}
template <class T, class W> product<T, W> slice_rows(product<T, W> p, index_t begin, index_t end) {
    p.m = end - begin;
    p.c += begin * p.ldc;
    p.a += p.a_transposed ? begin : begin * p.lda;
    return p;
}

// C = A^T B in blocks that read both factors as stored, by depth.
template <class T, class W> void multiply_by_blocks(context<cpu>& ctx, product<T, W> const& p) {
    blocks_of_c<T>(p.m, p.n, p.k, rows_to_read_both / tile_height)
        .in_parallel(ctx, p.m, p.n, [&](index_t row, index_t row_end, index_t column, index_t column_end) {
            serial_gemm(slice_rows(slice_columns(p, column, column_end), row, row_end));
        });
}

// One part of a product: packed columns of B, and how tasks divide it.
template <class T, class W> struct product_part {
    product<T, W> whole;
    index_t first_depth, depth;  // of the part
    index_t first_column, columns;
    T* packed;

    // A B stored by rows is packed by rows: often by the thread that wrote them.
    void pack(context<cpu>& ctx) const {
        constexpr auto width = static_cast<int>(tile_width<T>);
        auto const& p = whole;
        if (p.b_transposed)
            ctx.parallel(blocks_for(columns, width), [&](index_t q) {
                pack_turned<width>(packed + q * width * depth, p.b + (first_column + q * width) * p.ldb + first_depth,
                                   p.ldb, std::min<index_t>(width, columns - q * width), depth);
            });
        else
            ctx.parallel_ranges(depth, 32, [&](index_t begin, index_t end) {
                pack_columns<width>(packed, width * depth, p.b + first_depth * p.ldb + first_column, p.ldb, columns,
                                    begin, end);
            });
    }

    void multiply(context<cpu>& ctx) const {
        blocks_of_c<T>(whole.m, columns, depth, 8)
            .in_parallel(ctx, whole.m, columns, [&](index_t row, index_t row_end, index_t column, index_t column_end) {
                for (index_t l = 0; l < depth; l += depth_at_once)
                    for (index_t at = column; at < column_end; at += tile_width<T>)
                        multiply_columns(whole, first_depth + l, std::min(depth_at_once, depth - l),
                                         {packed + at * depth + l * tile_width<T>, tile_width<T>}, first_column + at,
                                         row, row_end);
            });
    }
};

// A product with a small C and a large depth, such as a weight gradient, divided along the depth: each task sums a
// slab, and the slabs are added to C in order. Bit-identical to the product by blocks.
template <class T> struct product_by_depth {
    static constexpr index_t most_sums = 262144;  // elements: 1 MB of float, which stays in caches

    product<T> const& p;
    index_t slabs = blocks_for(p.k, depth_at_once);
    index_t together = std::min(slabs, most_sums / (p.m * p.n));  // slabs that are summed before they are added to C

    // Whether this pays off: more than four slabs fit, and there are threads to share them.
    static bool serves(context<cpu> const& ctx, product<T> const& p) {
        return p.a_transposed && !p.b_transposed && ctx.threads() > 1 && p.k > depth_at_once &&
               p.m * p.n < most_sums / 4;
    }

    void multiply(context<cpu>& ctx) const {
        arena_scope const scope(ctx.workspace);
        auto const sums = ctx.workspace.template take<T>(extents<dyn>(together * p.m * p.n));
        for (index_t first = 0; first < slabs; first += together) {
            index_t const count = std::min(together, slabs - first);
            ctx.parallel(count,
                         [&](index_t i) { multiply_slab((first + i) * depth_at_once, sums.data() + i * p.m * p.n); });
            ctx.parallel_ranges(p.m, blocks_for(p.m, 8), [&](index_t begin, index_t end) {
                for (index_t row = begin; row < end; ++row) add_row(first, count, sums.data(), row);
            });
        }
    }

private:
    // sums (m, n) of the slab from depth l on.
    void multiply_slab(index_t l, T* sums) const {
        product<T> slab = p;
        slab.k = std::min(depth_at_once, p.k - l);
        slab.a += l * p.lda;
        slab.b += l * p.ldb;
        slab.c = sums;
        slab.ldc = p.n;
        slab.accumulates = false;
        slab.bias = nullptr;
        serial_gemm(slab);
    }

    // Adds slabs first .. first + count - 1 to one row of C; the first slab of all is added to C's start value.
    void add_row(index_t first, index_t count, T const* sums, index_t row) const {
        T* const c = p.c + row * p.ldc;
        for (index_t i = 0; i < count; ++i) {
            T const* const more = sums + (i * p.m + row) * p.n;
            T const* const start = first + i > 0 ? c : p.bias != nullptr ? p.bias : p.accumulates ? c : nullptr;
            for (index_t j = 0; j < p.n; ++j) c[j] = start != nullptr ? more[j] + start[j] : more[j];
        }
    }
};

template <class T, class W> void gemm(context<cpu>& ctx, product<T, W> const& p) {
    static_assert(has_packets<T>, "calm::matmul: products of this type are Eigen's: include calm/eigen.hpp");
    if (p.m == 0 || p.n == 0) return;
    if constexpr (std::is_same_v<T, float> && std::is_same_v<W, float>)
        if (auto const* const held = in_int8(ctx, p.b)) return ctx.multiply_int8(ctx, p, *held);
    if (ctx.independent_rows && can_be_skinny(p))
        return ctx.parallel_ranges(p.n, skinny_slice(p),
                                   [&](index_t begin, index_t end) { skinny_product(slice_columns(p, begin, end)); });
    if (is_skinny(p) || reads_b(p))
        return ctx.parallel_ranges(p.n, skinny_slice(p),
                                   [&](index_t begin, index_t end) { serial_gemm(slice_columns(p, begin, end)); });
    if (p.k == 0) return ctx.parallel(1, [&](index_t) { empty_product(p); });
    if constexpr (std::is_same_v<T, float> && std::is_same_v<W, float>)
        if (ctx.products != nullptr) return ctx.products->multiply(ctx, p);
    if constexpr (std::is_same_v<T, W>)
        if (product_by_depth<T>::serves(ctx, p)) return product_by_depth<T>{p}.multiply(ctx);
    if (reads_both(p)) return multiply_by_blocks(ctx, p);
    product_parts<T> const parts(p);
    arena_scope const scope(ctx.workspace);
    auto const b = ctx.workspace.template take<T>(extents<dyn>(parts.packed));
    for (index_t l = 0; l < p.k; l += parts.depth)
        for (index_t column = 0; column < p.n; column += parts.columns) {
            product_part<T, W> const part{
                p, l, std::min(parts.depth, p.k - l), column, std::min(parts.columns, p.n - column), b.data()};
            part.pack(ctx);
            part.multiply(ctx);
        }
}

}  // namespace calm::detail

#endif
