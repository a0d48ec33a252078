#pragma once
// Products of few rows with a table stored as checkpoints store it, (n, k), in portable block form: what takes time is
// to read the table, once, so much of it is under way at any time.

#include <algorithm>
#include <array>
#include <cstddef>

#include "calm/tensor/kernel.hpp"
#include "calm/tensor/math.hpp"
#include "calm/tensor/product.hpp"

namespace calm::detail {

// A warp computes Rows rows of C by a few of its columns. A lane adds up every 32nd group of neighbours along k, in
// order, then the lanes add up: an element's sum goes one way, whatever Rows is, how many rows there are, and where
// they lie. The table may be stored narrower than it is computed with: to the bits of its numbers as T. Products of the
// same rows are done side by side, each as it is by itself.
template <class T, class W, int Rows, int Products = 1> struct few_rows_kernel {
    static constexpr int threads = 128;
    static constexpr int run = 16 / static_cast<int>(sizeof(T));  // numbers of a group
    static constexpr int step = run * warp_size;                  // along k, from a group of a lane to its next
    static constexpr int columns = Rows == 1 ? 1 : 2;             // of C, a warp
    static constexpr int steps = 8 / columns;                     // of a slice: a lane has eight groups of the table
    static constexpr int slice = steps * step;                    // of k
    static constexpr int tile = threads / warp_size * columns;    // columns of C, a block
    struct shared {
        alignas(16) T a[2][Rows][slice];
        alignas(16) W b[2][steps][columns][threads * run];  // where a thread puts its groups, it reads them
    };
    product<T, W> of[Products];

    [[nodiscard]] index_t blocks() const {
        index_t all = 0;
        for (auto const& p : of) all += blocks_of(p);
        return all;
    }

    template <class Block> CALM_HD void operator()(Block& block, shared& s, index_t number) const {
        product<T, W> p = of[0];
        for (int i = 1; i < Products && number >= blocks_of(p); ++i) {
            number -= blocks_of(p);
            p = of[i];
        }
        multiply(block, s, p, number);
    }

private:
    using sums = group<T, Rows * columns>;

    CALM_HD static index_t chunks(product<T, W> const& p) { return blocks_for(p.m, Rows); }
    CALM_HD static index_t blocks_of(product<T, W> const& p) { return blocks_for(p.n, tile) * chunks(p); }

    // What block `number` of a product computes.
    template <class Block>
    CALM_HD static void multiply(Block& block, shared& s, product<T, W> const& p, index_t number) {
        // The same columns of all rows stand side by side: the second block of them finds the table in a cache.
        index_t const row = number % chunks(p) * Rows;
        auto const column = [&](int t) { return number / chunks(p) * tile + t / warp_size * columns; };
        typename Block::template per_thread<sums> parts;
        block.phase([&](int t) { parts[t] = sums(T{}); });
        auto const start = [&](int t, index_t first, int place) {
            for (int r = 0; r < Rows; ++r)
                for (int l = t * run; l < slice; l += threads * run)
                    copy(block, p.k, &s.a[place][r][l], p.a + math::min(row + r, p.m - 1) * p.lda, first + l);
            for (int i = 0; i < steps; ++i)
                for (int c = 0; c < columns; ++c)
                    copy(block, p.k, &s.b[place][i][c][t * run], p.b + math::min(column(t) + c, p.n - 1) * p.ldb,
                         first + i * step + t % warp_size * run);
        };
        for_slices(block, p.k, slice, start, [&](int t, index_t first, int place) {
            for (int i = 0; i < steps; ++i)
                if (first + i * step < p.k) add_step(parts[t], s, t, i, place);
        });
        auto const totals = block.template sums_of_warps<T, Rows * columns>(parts);
        block.phase([&](int t) {
            constexpr int each = warp_size / (Rows * columns);  // lanes that have one
            int const q = t % warp_size / each;
            index_t const r = row + q / columns;
            index_t const c = column(t) + q % columns;
            if (t % each == 0 && r < p.m && c < p.n) finish_element(p, r, c, totals[t]);
        });
    }

    // Begins to copy a group from l on, zeros behind k.
    template <class Block, class Stored>
    CALM_HD static void copy(Block& block, index_t k, Stored* to, Stored const* row, index_t l) {
        if (l + run <= k)
            block.copy_async(to, row + l, run);
        else
            copy_first(block, to, row + l, k - l, run);
    }

    // Adds the products of a group of each row of the table with the same of each row of A.
    CALM_HD static void add_step(sums& total, shared const& s, int t, int i, int place) {
        group<T, run> y[columns];
        for (int c = 0; c < columns; ++c) y[c] = load_group<T, run>(&s.b[place][i][c][t * run]);
        for (int r = 0; r < Rows; ++r) {
            auto const x = load_group<T, run>(&s.a[place][r][i * step + t % warp_size * run]);
            for (int c = 0; c < columns; ++c)
                for (int l = 0; l < run; ++l) total.lane[r * columns + c] += x.lane[l] * y[c].lane[l];
        }
    }
};

// So few rows that a GPU has multiplied them with a number of the table before it has read the next. Of more than eight
// the second eight find it in a cache.
inline constexpr index_t most_rows_by_warps = 16;

// Which products go so: not those of many rows, nor those whose tables lie the other way. A row that is one of many
// adds up by depth, here by lanes: to other bits.
template <class T, class W> bool goes_by_warps(product<T, W> const& p) {
    return p.b_transposed && !p.a_transposed && p.m <= most_rows_by_warps;
}

// Products of the same rows, in one launch.
template <block_executor Backend, class T, class W, std::size_t Products>
void products_by_warps(context<Backend> const& ctx, std::array<product<T, W>, Products> const& products) {
    auto const run = [&]<int Rows>() {
        few_rows_kernel<T, W, Rows, static_cast<int>(Products)> kernel{};
        std::copy(products.begin(), products.end(), kernel.of);
        launch(ctx, kernel.blocks(), kernel);
    };
    index_t const rows = products[0].m;
    if (rows <= 1) return run.template operator()<1>();
    if (rows <= 2) return run.template operator()<2>();
    if (rows <= 4) return run.template operator()<4>();
    run.template operator()<8>();
}
template <block_executor Backend, class T, class W>
void product_by_warps(context<Backend> const& ctx, product<T, W> const& p) {
    products_by_warps(ctx, std::array<product<T, W>, 1>{p});
}

}  // namespace calm::detail
