#pragma once
// Products of matrices on the CPU: factors packed once into panels that threads share, tiles of C in registers (Goto
// and van de Geijn 2008). Under nvcc declared alone: the definitions come from a unit of another compiler.

#include "calm/tensor/context.hpp"
#include "calm/tensor/product.hpp"

namespace calm::detail {

template <class T, class W> void gemm(context<cpu>& ctx, product<T, W> const& p);
// One thread, memory of the stack alone: for small products. The bits are those of gemm.
template <class T, class W> void serial_gemm(product<T, W> const& p);

}  // namespace calm::detail

#ifndef __CUDACC__

#include <algorithm>
#include <type_traits>

#include "calm/tensor/cpu/few_rows.hpp"
#include "calm/tensor/cpu/panels.hpp"
#include "calm/tensor/cpu/tile.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm::detail {

// Whether T has packets, and so products here. Those of other types are Eigen's, cpu/eigen.hpp.
template <class T>
concept has_packets = packed<packet<T>>;

// How deep a panel is used at once: so deep that it stays in the first cache, 32 KB, whatever the registers' width.
// Sums of deeper products are added up from sums of so many, which keeps their rounding small.
inline constexpr index_t depth_at_once = 256;

// What C starts with at an element of row `row` and column `column`, in a part of the product that begins at depth
// `l`.
template <class T, class W> tile_of_c<T> tile_at(product<T, W> const& p, index_t l, index_t row, index_t column) {
    tile_of_c<T> to{p.c + row * p.ldc + column, p.ldc, nullptr, p.ldc, 0, std::min(tile_width<T>, p.n - column)};
    if (l > 0 || (p.bias == nullptr && p.accumulates)) {
        to.start = to.c;
    } else if (p.bias != nullptr) {
        to.start = p.bias + column;
        to.start_row = 0;
    }
    return to;
}

// Adds rows begin .. end of A, as they are stored or packed, through some columns of B, from depth l on. A row that is
// missing in the last tile is not read.
template <class T, class W>
void multiply_columns(product<T, W> const& p, index_t l, index_t depth, T const* packed_a, index_t a_panel,
                      columns_of_b<T> const& b, index_t column, index_t begin, index_t end) {
    T few[static_cast<std::size_t>(tile_height * depth_at_once)];
    for (index_t i = begin; i < end; i += tile_height) {
        auto to = tile_at(p, l, i, column);
        to.rows = std::min<index_t>(tile_height, end - i);
        rows_of_a<T> a{p.a + i * p.lda + l, p.lda, 1};
        if (packed_a != nullptr)
            a = {packed_a + (i - begin) / tile_height * a_panel, 1, tile_height};
        else if (to.rows < tile_height) {
            for (index_t r = 0; r < tile_height; ++r)
                std::copy_n(a.data + std::min(r, to.rows - 1) * p.lda, depth, few + r * depth);
            a = {few, depth, 1};
        }
        multiply_rows(depth, a, b, to);
    }
}

// A product without depth: C is what it starts with.
template <class T, class W> void empty_product(product<T, W> const& p) {
    for (index_t row = 0; row < p.m; ++row)
        if (p.bias != nullptr)
            std::copy_n(p.bias, p.n, p.c + row * p.ldc);
        else if (!p.accumulates)
            std::fill_n(p.c + row * p.ldc, p.n, T{});
}

// Whether few rows go through B as it is stored, if that is as it is computed with: packing it takes longer than what
// they gain by it.
template <class T, class W> bool reads_b(product<T, W> const& p) {
    return !p.a_transposed && !p.b_transposed && p.m <= 2 * tile_height;
}

// At most tile_width columns of B from `column` on, of a part of the depth, as tiles read them: packed, for which there
// is room in `panel`, or as they are stored.
template <class T, class W>
columns_of_b<T> columns_for_tiles(product<T, W> const& p, T* panel, index_t l, index_t depth, index_t column) {
    index_t const columns = std::min(tile_width<T>, p.n - column);
    if constexpr (std::is_same_v<T, W>)
        if (columns == tile_width<T> && reads_b(p)) return {p.b + l * p.ldb + column, p.ldb};
    if (p.b_transposed)
        pack_turned<tile_width<T>>(panel, p.b + column * p.ldb + l, p.ldb, columns, depth);
    else
        pack_columns<tile_width<T>>(panel, 0, p.b + l * p.ldb + column, p.ldb, columns, 0, depth);
    return {panel, tile_width<T>};
}

template <class T, class W> void serial_gemm(product<T, W> const& p) {
    static_assert(has_packets<T>, "calm::matmul: products of this type are Eigen's: include calm/eigen.hpp");
    if (has_few_rows(p)) return product_of_few_rows(p);
    if (p.k == 0) return empty_product(p);
    constexpr index_t room = 4 * tile_height * depth_at_once;
    alignas(memory_alignment) T panel[static_cast<std::size_t>(tile_width<T> * depth_at_once)];
    alignas(memory_alignment) T packed_a[static_cast<std::size_t>(room)];
    for (index_t l = 0; l < p.k; l += depth_at_once) {
        index_t const depth = std::min(depth_at_once, p.k - l);
        index_t const rows_at_once = p.a_transposed ? room / (tile_height * depth) * tile_height : p.m;
        for (index_t row = 0; row < p.m; row += rows_at_once) {
            index_t const end = std::min(p.m, row + rows_at_once);
            if (p.a_transposed)
                pack_columns<tile_height>(packed_a, tile_height * depth, p.a + l * p.lda + row, p.lda, end - row, 0,
                                          depth);
            for (index_t column = 0; column < p.n; column += tile_width<T>)
                multiply_columns(p, l, depth, p.a_transposed ? packed_a : nullptr, tile_height * depth,
                                 columns_for_tiles(p, panel, l, depth, column), column, row, end);
        }
    }
}

template <class T, class W> product<T, W> slice_columns(product<T, W> p, index_t begin, index_t end) {
    p.n = end - begin;
    p.c += begin;
    p.b += p.b_transposed ? begin * p.ldb : begin;
    if (p.bias != nullptr) p.bias += begin;
    return p;
}

// How a product is cut, from its shape alone: into parts of the depth, of the columns and, where A is packed, of the
// rows, so large that what is packed of a factor is at most a megabyte.
template <class T> struct product_parts {
    index_t depth;     // of a part: all of it, or whole depths at once
    index_t columns;   // of a part, whole panels
    index_t rows;      // of a part, whole tiles
    index_t packed_b;  // elements; fewer of a product of less depth
    index_t packed_a;  // the same, none where A is read as it is stored

    template <class W> explicit product_parts(product<T, W> const& p) {
        constexpr index_t most = 1048576 / static_cast<index_t>(sizeof(T));
        constexpr index_t deep = depth_at_once;
        index_t const n = blocks_for(p.n, tile_width<T>) * tile_width<T>;
        index_t const m = blocks_for(p.m, tile_height) * tile_height;
        depth = std::min(p.k, std::max<index_t>(1, most / (p.a_transposed ? std::max(m, n) : n) / deep) * deep);
        columns = std::min(n, most / depth / tile_width<T> * tile_width<T>);
        rows = p.a_transposed ? std::min(m, most / depth / tile_height * tile_height) : p.m;
        packed_b = std::min(most, n * depth);
        packed_a = p.a_transposed ? std::min(most, m * depth) : 0;
    }
};

// One part of a product: its packed factors, and how tasks cut it.
template <class T, class W> struct product_part {
    product<T, W> whole;
    index_t first_depth, depth;  // of the part
    index_t first_column, columns;
    index_t first_row, rows;
    T* packed_b;
    T* packed_a;  // null: A is read as stored

    // Packs A where it is to be packed, and B where nobody has yet. What is stored by rows is packed by rows: often by
    // the thread that wrote them.
    void pack(context<cpu>& ctx, bool b_too) const {
        constexpr auto width = static_cast<int>(tile_width<T>);
        auto const& p = whole;
        bool const b_by_rows = b_too && !p.b_transposed;
        if (b_too && p.b_transposed)
            ctx.parallel(blocks_for(columns, width), [&](index_t q) {
                pack_turned<width>(packed_b + q * width * depth, p.b + (first_column + q * width) * p.ldb + first_depth,
                                   p.ldb, std::min<index_t>(width, columns - q * width), depth);
            });
        if (packed_a == nullptr && !b_by_rows) return;
        ctx.parallel_ranges(depth, 32, [&](index_t begin, index_t end) {
            if (packed_a != nullptr)
                pack_columns<tile_height>(packed_a, tile_height * depth, p.a + first_depth * p.lda + first_row, p.lda,
                                          rows, begin, end);
            if (b_by_rows)
                pack_columns<width>(packed_b, width * depth, p.b + first_depth * p.ldb + first_column, p.ldb, columns,
                                    begin, end);
        });
    }

    void multiply(context<cpu>& ctx) const {
        constexpr index_t worthwhile = 1 << 18;  // multiplications a task
        constexpr index_t many = 32;             // tasks, if they are worth it
        index_t const tiles = blocks_for(rows, tile_height);
        index_t const panels = blocks_for(columns, tile_width<T>);
        index_t const high = blocks_for(tiles, blocks_for(tiles, 8));  // tiles a task: so many stay in the second cache
        index_t const down = blocks_for(tiles, high);
        index_t const tasks = std::min(many, rows * columns * depth / worthwhile + 1);
        index_t const wide = blocks_for(panels, std::max<index_t>(1, tasks / down));
        index_t const across = blocks_for(panels, wide);
        ctx.parallel(down * across, [&](index_t task) {
            index_t const begin = task / across * high * tile_height;
            multiply(begin, std::min(rows, begin + high * tile_height), task % across * wide,
                     std::min(panels, (task % across + 1) * wide));
        });
    }

private:
    // Rows begin .. end through some panels.
    void multiply(index_t begin, index_t end, index_t first_panel, index_t last_panel) const {
        for (index_t l = 0; l < depth; l += depth_at_once) {
            index_t const deep = std::min(depth_at_once, depth - l);
            T const* const a = packed_a == nullptr ? nullptr : packed_a + begin * depth + l * tile_height;
            for (index_t q = first_panel; q < last_panel; ++q)
                multiply_columns(whole, first_depth + l, deep, a, tile_height * depth,
                                 {packed_b + (q * depth + l) * tile_width<T>, tile_width<T>},
                                 first_column + q * tile_width<T>, first_row + begin, first_row + end);
        }
    }
};

// A product with a small C of great depth, as gradients of weights are, cut by the depth: a task packs its slab of both
// factors and leaves the slab's sums, which are added to C in the order of the slabs. Nothing that one thread packed is
// read by another, and the bits are those of the product by parts.
template <class T> struct product_by_depth {
    static constexpr index_t most_sums = 262144;  // elements: a megabyte of float, which caches keep

    product<T> const& p;
    index_t slabs = blocks_for(p.k, depth_at_once);
    index_t together = std::min(slabs, most_sums / (p.m * p.n));  // slabs, before their sums are added to C
    index_t panels_a = blocks_for(p.m, tile_height);
    index_t panels_b = blocks_for(p.n, tile_width<T>);
    index_t packed = (panels_a * tile_height + panels_b * tile_width<T>)*depth_at_once;  // elements a thread

    // Whether it is worth it: more than four slabs' sums fit, and one thread alone would only move them.
    static bool serves(context<cpu> const& ctx, product<T> const& p) {
        return p.a_transposed && !p.b_transposed && ctx.threads() > 1 && p.k > depth_at_once &&
               p.m * p.n < most_sums / 4;
    }

    void multiply(context<cpu>& ctx) const {
        arena_scope const scope(ctx.scratch);
        auto const sums = ctx.scratch.template take<T>(extents<dyn>(together * p.m * p.n));
        auto const room = ctx.scratch.template take<T>(extents<dyn>(ctx.threads_for(together) * packed));
        for (index_t first = 0; first < slabs; first += together) {
            index_t const count = std::min(together, slabs - first);
            ctx.parallel(count, [&](index_t i, int thread) {
                multiply_slab((first + i) * depth_at_once, sums.data() + i * p.m * p.n, room.data() + thread * packed);
            });
            ctx.parallel_ranges(p.m, blocks_for(p.m, 8), [&](index_t begin, index_t end) {
                for (index_t row = begin; row < end; ++row) add_row(first, count, sums.data(), row);
            });
        }
    }

private:
    // sums (m, n) of the slab from depth l on.
    void multiply_slab(index_t l, T* sums, T* room) const {
        index_t const depth = std::min(depth_at_once, p.k - l);
        T* const packed_b = room + panels_a * tile_height * depth;
        pack_columns<tile_height>(room, tile_height * depth, p.a + l * p.lda, p.lda, p.m, 0, depth);
        pack_columns<tile_width<T>>(packed_b, tile_width<T> * depth, p.b + l * p.ldb, p.ldb, p.n, 0, depth);
        product<T> slab = p;
        slab.c = sums;
        slab.ldc = p.n;
        slab.accumulates = false;
        slab.bias = nullptr;
        for (index_t q = 0; q < panels_b; ++q)
            multiply_columns(slab, 0, depth, room, tile_height * depth,
                             {packed_b + q * tile_width<T> * depth, tile_width<T>}, q * tile_width<T>, 0, p.m);
    }

    // Adds `count` slabs' sums, of which `first` is the first, to a row of C, or to what C starts with.
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
    if (has_few_rows(p) || reads_b(p))
        return ctx.parallel_ranges(p.n, few_rows_slice(p),
                                   [&](index_t begin, index_t end) { serial_gemm(slice_columns(p, begin, end)); });
    if (p.k == 0) return ctx.parallel(1, [&](index_t) { empty_product(p); });
    if constexpr (std::is_same_v<T, W>)
        if (product_by_depth<T>::serves(ctx, p)) return product_by_depth<T>{p}.multiply(ctx);
    product_parts<T> const parts(p);
    arena_scope const scope(ctx.scratch);
    auto const b = ctx.scratch.template take<T>(extents<dyn>(parts.packed_b));
    auto const a = ctx.scratch.template take<T>(extents<dyn>(parts.packed_a));
    for (index_t l = 0; l < p.k; l += parts.depth)
        for (index_t column = 0; column < p.n; column += parts.columns)
            for (index_t row = 0; row < p.m; row += parts.rows) {
                product_part<T, W> const part{p,
                                              l,
                                              std::min(parts.depth, p.k - l),
                                              column,
                                              std::min(parts.columns, p.n - column),
                                              row,
                                              std::min(parts.rows, p.m - row),
                                              b.data(),
                                              p.a_transposed ? a.data() : nullptr};
                part.pack(ctx, row == 0);
                part.multiply(ctx);
            }
}

}  // namespace calm::detail

#endif
