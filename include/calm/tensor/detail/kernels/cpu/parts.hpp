#pragma once
// How a product is divided for caches, tiles and threads: by its shape alone, so that its bits do not depend on
// threads.

#include <algorithm>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/detail/kernels/cpu/tile.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

// The depth of a panel used at a time: it stays in an L1 cache of 32 KB, whatever the registers' width. Deeper products
// add up sums of this depth, which keeps their rounding small.
inline constexpr index_t depth_at_once = 256;

// The tile of C at (row, column), and what its sums start with, in a part of the product that begins at depth l.
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

// How tasks divide C (m, n), by its shape alone: into blocks of whole tiles.
template <class T> struct blocks_of_c {
    index_t high;    // rows per block; its part of A stays in the L2 cache
    index_t wide;    // columns per block
    index_t down;    // blocks from top to bottom
    index_t across;  // blocks from left to right

    blocks_of_c(index_t m, index_t n, index_t depth, index_t most_tiles) {
        constexpr index_t worthwhile = 1 << 18;  // multiplications per task
        constexpr index_t many = 32;             // tasks, if each has enough work
        index_t const tiles = blocks_for(m, tile_height);
        index_t const panels = blocks_for(n, tile_width<T>);
        index_t const tiles_high = blocks_for(tiles, blocks_for(tiles, most_tiles));
        down = blocks_for(tiles, tiles_high);
        index_t const tasks = std::min(many, m * n * depth / worthwhile + 1);
        index_t const panels_wide = blocks_for(panels, std::max<index_t>(1, tasks / down));
        across = blocks_for(panels, panels_wide);
        high = tiles_high * tile_height;
        wide = panels_wide * tile_width<T>;
    }

    // Calls f(first row, end of rows, first column, end of columns) for each block, in parallel.
    template <class F> void in_parallel(context<cpu>& ctx, index_t m, index_t n, F const& f) const {
        ctx.parallel(down * across, [&](index_t task) {
            index_t const row = task / across * high, column = task % across * wide;
            f(row, std::min(m, row + high), column, std::min(n, column + wide));
        });
    }
};

// How a product is divided into parts of the depth and of the columns, by its shape alone: the packed part of B takes
// at most 1 MB.
template <class T> struct product_parts {
    index_t depth;    // of a part: all, or a multiple of depth_at_once
    index_t columns;  // of a part: whole panels
    index_t packed;   // the most elements that a packed part needs

    template <class W> explicit product_parts(product<T, W> const& p) {
        constexpr index_t most = 1048576 / static_cast<index_t>(sizeof(T));
        constexpr index_t deep = depth_at_once;
        index_t const n = blocks_for(p.n, tile_width<T>) * tile_width<T>;
        depth = std::min(p.k, std::max<index_t>(1, most / n / deep) * deep);
        columns = std::min(n, most / depth / tile_width<T> * tile_width<T>);
        packed = std::min(most, n * depth);
    }
};

}  // namespace calm::detail
