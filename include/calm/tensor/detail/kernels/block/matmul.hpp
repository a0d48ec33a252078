#pragma once
// Matrix products as portable block kernels, with tiles of both factors in shared memory. `blocks` and `emulated` use
// them, and a GPU where nothing faster exists. Both factors are stored as W; the arithmetic has C's type.

#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/detail/kernels/block/skinny_product.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

// A block computes a tile of C, a thread 4 x 4 of its elements: rows t / 16 + 16 i, columns t % 16 + 16 j. Each slice
// of k is summed before it joins the total, in the order of k. The next slice is loaded while one is used.
template <class T, class W = T> struct product_kernel {
    static constexpr int threads = 256;
    static constexpr int side = 16;  // threads along each edge
    static constexpr int each = 4;   // elements of a thread along each edge
    static constexpr int tile = side * each;
    static constexpr int slice = 16;            // elements of k
    static constexpr int run = 16 / sizeof(W);  // elements per copy, where they are contiguous
    struct alignas(16) factor {
        W of[slice][tile + run];  // (k, rows or columns); runs stay aligned
    };
    struct shared {
        factor a[2];
        factor b[2];
    };
    using sum_type = computed_in<T>;
    struct sums {
        sum_type of[each][each];
    };
    product<T, W, W> p;

    template <class Block> CALM_HD void operator()(Block& block, shared& s, index_t number) const {
        index_t const tiles = blocks_for(p.n, tile);
        index_t const row = number / tiles * tile;
        index_t const column = number % tiles * tile;
        typename Block::template per_thread<sums> totals;
        block.phase([&](int t) { totals[t] = {}; });
        auto const start = [&](int t, index_t k, int place) {
            copy(block, s.a[place], p.a, p.lda, p.a_transposed, row, p.m, k, t);
            copy(block, s.b[place], p.b, p.ldb, !p.b_transposed, column, p.n, k, t);
        };
        for_slices(block, p.k, slice, start, [&](int t, index_t, int place) {
            int const y = t / side;
            int const x = t % side;
            if (row + y < p.m && column + x < p.n) add_slice(totals[t], s.a[place], s.b[place], y, x);
        });
        block.phase([&](int t) {
            for (int i = 0; i < each; ++i)
                for (int j = 0; j < each; ++j) {
                    index_t const r = row + t / side + side * i;
                    index_t const c = column + t % side + side * j;
                    if (r < p.m && c < p.n) finish_element(p, r, c, totals[t].of[i][j]);
                }
        });
    }

private:
    // Starts s[l][i] = element (first + i, k + l) of a factor, which is stored (k, size) if k_major, else (size, k).
    template <class Block>
    CALM_HD void copy(Block& block, factor& s, W const* x, index_t stride, bool k_major, index_t first, index_t size,
                      index_t k, int t) const {
        int const each_run = k_major ? run : 1;
        for (int e = t * each_run; e < slice * tile; e += threads * each_run) {
            int const i = k_major ? e % tile : e / slice;
            int const l = k_major ? e / tile : e % slice;
            index_t const at = first + i;
            W const* const from = x + (k_major ? (k + l) * stride + at : at * stride + k + l);
            index_t const inside = k + l < p.k ? size - at : 0;
            if (k_major)
                copy_first(block, &s.of[l][i], from, inside, run);
            else
                copy_first(block, &s.of[l][i], from, inside);
        }
    }

    CALM_HD static void add_slice(sums& total, factor const& a, factor const& b, int y, int x) {
        sums sum = {};
        for (int l = 0; l < slice; ++l)
            for (int i = 0; i < each; ++i)
                for (int j = 0; j < each; ++j)
                    sum.of[i][j] +=
                        static_cast<sum_type>(a.of[l][y + side * i]) * static_cast<sum_type>(b.of[l][x + side * j]);
        for (int i = 0; i < each; ++i)
            for (int j = 0; j < each; ++j) total.of[i][j] += sum.of[i][j];
    }
};

template <block_backend Backend, class T, class W>
void block_product(context<Backend> const& ctx, product<T, W, W> const& p) {
    constexpr int tile = product_kernel<T, W>::tile;
    launch(ctx, blocks_for(p.m, tile) * blocks_for(p.n, tile), product_kernel<T, W>{p});
}
template <class T> void gemm(context<blocks> const& ctx, product<T> const& p) {
    if (is_skinny_on_device(p)) return launch_skinny_product(ctx, p);
    block_product(ctx, p);
}

}  // namespace calm::detail
