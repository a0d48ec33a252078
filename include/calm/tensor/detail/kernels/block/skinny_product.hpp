#pragma once
// Skinny products, of few rows with a table (n, k) in the layout of checkpoints, as portable block kernels. Reading the
// table once takes the time, so many of its loads are in flight at once.

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/detail/ops/product.hpp"
#include "calm/tensor/expr/ops.hpp"

namespace calm::detail {

// What is applied to the rows first: nothing, or RMSNorm with a gain (k), i.e. a factor 1 / sqrt(mean square + eps) per
// row.
struct no_norm {};
template <class T> struct rms_norm_of_rows {
    T const* gain;
    T eps;
};

// Epilogue, an extra output in the layout of C: none; silu(C); or silu(C of the first product) * C of the second.
enum class product_epilogue { nothing, silu, gated };

// A warp computes Rows rows of C for a few columns. A lane sums every 32nd group of neighbours along k in order, then
// the lanes' sums are combined: the order does not depend on Rows, on the number of rows or on their place. Every warp
// also sums the norm's squares in this order, which is cheap next to reading the table. The table may be stored in a
// narrower type W; its values are converted to T exactly. Products of the same rows run side by side, each with the
// result that it has alone.
template <class T, class W, int Rows, int Products = 1, product_epilogue Epilogue = product_epilogue::nothing,
          class Norm = no_norm>
struct skinny_product_kernel {
    static constexpr bool is_gated = Epilogue == product_epilogue::gated;
    static_assert(!is_gated || Products == 2, "calm::skinny_product_kernel: a gate needs exactly two products");
    static constexpr bool has_norm = !std::is_same_v<Norm, no_norm>;
    static constexpr int threads = 128;
    static constexpr int run = 16 / static_cast<int>(sizeof(T));    // elements of a group
    static constexpr int step = run * warp_size;                    // along k, between two groups of a lane
    static constexpr int columns = Rows == 1 && !is_gated ? 1 : 2;  // of the tables, per warp
    static constexpr int of_c = is_gated ? 1 : columns;             // columns of C per warp
    static constexpr int steps = 8 / columns;                       // per slice: a lane has eight groups of the tables
    static constexpr int slice = steps * step;                      // elements of k
    static constexpr int tile = threads / warp_size * of_c;         // columns of C per block
    struct shared {
        alignas(16) T a[2][Rows + (has_norm ? 1 : 0)][slice];  // the gain follows the rows
        alignas(16) W b[2][steps][columns][threads * run];     // a thread reads the groups that it copied
    };
    Norm norm;    // must be first: after an array, g++ 12's __builtin_clear_padding (emulated) clears values
    T* epilogue;  // (m, n), with C's row stride, or null
    product<T, W> of[Products];  // all of the same rows

    [[nodiscard]] index_t blocks() const {
        index_t all = 0;
        for (auto const& p : of) {
            all += blocks_of(p);
            if (is_gated) break;
        }
        return all;
    }

    template <class Block> CALM_HD void operator()(Block& block, shared& s, index_t number) const {
        product<T, W> p = of[0];
        if constexpr (!is_gated)
            for (int i = 1; i < Products && number >= blocks_of(p); ++i) {
                number -= blocks_of(p);
                p = of[i];
            }
        multiply(block, s, p, number);
    }

private:
    using sums = group<T, Rows * columns>;
    using squares = group<T, Rows>;

    CALM_HD static index_t chunks(product<T, W> const& p) { return blocks_for(p.m, Rows); }
    CALM_HD static index_t blocks_of(product<T, W> const& p) { return blocks_for(p.n, tile) * chunks(p); }

    // Computes the part of C that block `number` of a product has.
    template <class Block>
    CALM_HD void multiply(Block& block, shared& s, product<T, W> const& p, index_t number) const {
        // Blocks of the same columns are neighbours: the second one finds the table in a cache.
        index_t const row = number % chunks(p) * Rows;
        auto const column = [&](int t) { return number / chunks(p) * tile + t / warp_size * of_c; };
        typename Block::template per_thread<sums> parts;
        typename Block::template per_thread<squares> square_parts;
        block.phase([&](int t) {
            parts[t] = sums(T{});
            square_parts[t] = squares(T{});
        });
        auto const start = [&](int t, index_t first, int place) {
            for (int l = t * run; l < slice; l += threads * run) {
                for (int r = 0; r < Rows; ++r)
                    copy(block, p.k, &s.a[place][r][l], p.a + math::min(row + r, p.m - 1) * p.lda, first + l);
                if constexpr (has_norm) copy(block, p.k, &s.a[place][Rows][l], norm.gain, first + l);
            }
            for (int i = 0; i < steps; ++i)
                for (int c = 0; c < columns; ++c)
                    copy(block, p.k, &s.b[place][i][c][t * run], row_of_table(p, column(t), c),
                         first + i * step + t % warp_size * run);
        };
        for_slices(block, p.k, slice, start, [&](int t, index_t first, int place) {
            for (int i = 0; i < steps; ++i)
                if (first + i * step < p.k) add_step(parts[t], square_parts[t], s, t, i, place);
        });
        auto totals = block.template sums_of_warps<T, Rows * columns>(parts);
        if constexpr (has_norm) {  // a lane gets the squares of the row whose total it has
            auto const total_squares = block.template sums_of_warps<T, Rows>(square_parts);
            block.each([&](int t) {
                totals[t] *= op::reciprocal_root::value(total_squares[t] / static_cast<T>(p.k) + norm.eps);
            });
        }
        constexpr int each = warp_size / (Rows * columns);  // lanes per total
        auto const elements = [&](auto const& f) {          // calls f(t, row, column of C, column of the warp)
            block.phase([&](int t) {
                int const q = t % warp_size / each, c = q % columns;
                index_t const r = row + q / columns, of_all = column(t) + (is_gated ? 0 : c);
                if (t % each == 0 && r < p.m && of_all < p.n) f(t, r, of_all, c);
            });
        };
        elements([&](int t, index_t r, index_t j, int c) {
            if (is_gated && c != 0)
                totals[t] = finish_element(of[Products - 1], r, j, totals[t]);
            else
                totals[t] = finish_element(p, r, j, totals[t]);
            if constexpr (Epilogue == product_epilogue::silu) epilogue[r * p.ldc + j] = op::silu::value(totals[t]);
        });
        if constexpr (is_gated) {
            auto const others = block.shuffle_xor(totals, each);  // the other product's value of the same element
            elements([&](int t, index_t r, index_t j, int c) {
                if (c == 0) epilogue[r * p.ldc + j] = op::silu::value(totals[t]) * others[t];
            });
        }
    }

    // The table row that column c of a warp reads, `column` being the warp's first. Past the end it is the last one.
    CALM_HD W const* row_of_table(product<T, W> const& p, index_t column, int c) const {
        if constexpr (is_gated) return of[c].b + math::min(column, p.n - 1) * of[c].ldb;
        return p.b + math::min(column + c, p.n - 1) * p.ldb;
    }

    // Starts copying the group at index l of `row`, with zeros past k.
    template <class Block, class Stored>
    CALM_HD static void copy(Block& block, index_t k, Stored* to, Stored const* row, index_t l) {
        if (l + run <= k)
            block.copy_async(to, row + l, run);
        else
            copy_first(block, to, row + l, k - l, run);
    }

    // Adds the products of one group of every table row with the same group of every row of A, and the squares of A.
    CALM_HD static void add_step(sums& total, squares& of_rows, shared const& s, int t, int i, int place) {
        int const at = i * step + t % warp_size * run;
        group<T, run> y[columns];
        for (int c = 0; c < columns; ++c) y[c] = load_group<T, run>(&s.b[place][i][c][t * run]);
        if constexpr (has_norm) {
            auto const gain = load_group<T, run>(&s.a[place][Rows][at]);
            for (int c = 0; c < columns; ++c) y[c] = y[c] * gain;
        }
        for (int r = 0; r < Rows; ++r) {
            auto const x = load_group<T, run>(&s.a[place][r][at]);
            for (int c = 0; c < columns; ++c)
                for (int l = 0; l < run; ++l) total.lane[r * columns + c] += x.lane[l] * y[c].lane[l];
            if constexpr (has_norm)
                for (int l = 0; l < run; ++l) of_rows.lane[r] += x.lane[l] * x.lane[l];
        }
    }
};

// With at most this many rows, a GPU has used a value of the table before it has read the next. Above eight rows, the
// second eight find the table in a cache.
inline constexpr index_t most_skinny_rows = 16;

// Whether a product is computed this way: few rows, and a transposed table. Larger products sum along k rather than by
// lanes, so their last bits differ.
template <class T, class W> bool is_skinny_on_device(product<T, W> const& p) {
    return p.b_transposed && !p.a_transposed && p.m <= most_skinny_rows;
}

// Products of the same rows and their epilogue, in one launch.
template <product_epilogue Epilogue = product_epilogue::nothing, block_backend Backend, class T, class W,
          std::size_t Products, class Norm = no_norm>
void launch_skinny_products(context<Backend> const& ctx, std::array<product<T, W>, Products> const& products,
                            T* epilogue = nullptr, Norm const& norm = {}) {
    auto const run = [&]<int Rows>() {
        skinny_product_kernel<T, W, Rows, static_cast<int>(Products), Epilogue, Norm> kernel{
            .norm = norm, .epilogue = epilogue, .of = {}};
        std::copy(products.begin(), products.end(), kernel.of);
        launch(ctx, kernel.blocks(), kernel);
    };
    index_t const rows = products[0].m;
    if (rows <= 1) return run.template operator()<1>();
    if (rows <= 2) return run.template operator()<2>();
    if (rows <= 4) return run.template operator()<4>();
    run.template operator()<8>();
}
template <block_backend Backend, class T, class W>
void launch_skinny_product(context<Backend> const& ctx, product<T, W> const& p) {
    launch_skinny_products(ctx, std::array<product<T, W>, 1>{p});
}

}  // namespace calm::detail
