#pragma once
// Products of few rows with a table stored as checkpoints store it, (n, k), in portable block form: what takes time is
// to read the table, once, so much of it is under way at any time.

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "calm/tensor/kernel.hpp"
#include "calm/tensor/math.hpp"
#include "calm/tensor/ops.hpp"
#include "calm/tensor/product.hpp"

namespace calm::detail {

// What a product of few rows makes of its rows first: nothing, or their norm: each by 1 / sqrt(mean square + eps), and
// times a gain (k).
struct no_norm {};
template <class T> struct rms_norm_of_rows {
    T const* gain;
    T eps;
};

// What is written beside C, like it: nothing; silu(C); or of two products, of a gate and of what it is a gate of,
// silu(C of the first) * C of the second.
enum class beside_products { nothing, silu, gated };

// A warp computes Rows rows of C by a few of its columns. A lane adds up every 32nd group of neighbours along k, in
// order, then the lanes add up: an element's sum goes one way, whatever Rows is, how many rows there are, and where
// they lie. A norm's squares go the same way beside it, in every warp: what takes time is to read the table. It may be
// stored narrower than it is computed with: to the bits of its numbers as T. Products of the same rows are done side by
// side, each as it is by itself.
template <class T, class W, int Rows, int Products = 1, beside_products Beside = beside_products::nothing,
          class Norm = no_norm>
struct few_rows_kernel {
    static constexpr bool is_gated = Beside == beside_products::gated;
    static_assert(!is_gated || Products == 2, "calm::few_rows_kernel: a gate has one product beside it");
    static constexpr bool has_norm = !std::is_same_v<Norm, no_norm>;
    static constexpr int threads = 128;
    static constexpr int run = 16 / static_cast<int>(sizeof(T));    // numbers of a group
    static constexpr int step = run * warp_size;                    // along k, from a group of a lane to its next
    static constexpr int columns = Rows == 1 && !is_gated ? 1 : 2;  // of tables, a warp
    static constexpr int of_c = is_gated ? 1 : columns;             // columns of C, a warp
    static constexpr int steps = 8 / columns;                       // of a slice: a lane has eight groups of tables
    static constexpr int slice = steps * step;                      // of k
    static constexpr int tile = threads / warp_size * of_c;         // columns of C, a block
    struct shared {
        alignas(16) T a[2][Rows + (has_norm ? 1 : 0)][slice];  // the gain behind the rows
        alignas(16) W b[2][steps][columns][threads * run];     // where a thread puts its groups, it reads them
    };
    Norm norm;                   // first: behind an array, g++ 12's __builtin_clear_padding (emulated) clears numbers
    T* beside;                   // (m, n), as far apart as C's rows, or null
    product<T, W> of[Products];  // of the same rows

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

    // What block `number` of a product computes.
    template <class Block>
    CALM_HD void multiply(Block& block, shared& s, product<T, W> const& p, index_t number) const {
        // The same columns of all rows stand side by side: the second block of them finds the table in a cache.
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
        constexpr int each = warp_size / (Rows * columns);  // lanes that have a total
        auto const elements = [&](auto const& f) {          // f(t, row, column of C, column of the warp)
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
            if constexpr (Beside == beside_products::silu) beside[r * p.ldc + j] = op::silu::value(totals[t]);
        });
        if constexpr (is_gated) {
            auto const others = block.shuffle_xor(totals, each);  // of the same element
            elements([&](int t, index_t r, index_t j, int c) {
                if (c == 0) beside[r * p.ldc + j] = op::silu::value(totals[t]) * others[t];
            });
        }
    }

    // What column c of a warp reads, whose first is `column`: behind the last one that again.
    CALM_HD W const* row_of_table(product<T, W> const& p, index_t column, int c) const {
        if constexpr (is_gated) return of[c].b + math::min(column, p.n - 1) * of[c].ldb;
        return p.b + math::min(column + c, p.n - 1) * p.ldb;
    }

    // Begins to copy a group from l on, zeros behind k.
    template <class Block, class Stored>
    CALM_HD static void copy(Block& block, index_t k, Stored* to, Stored const* row, index_t l) {
        if (l + run <= k)
            block.copy_async(to, row + l, run);
        else
            copy_first(block, to, row + l, k - l, run);
    }

    // Adds the products of a group of each row of the table with the same of each row of A, and the squares of these.
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

// So few rows that a GPU has multiplied them with a number of the table before it has read the next. Of more than eight
// the second eight find it in a cache.
inline constexpr index_t most_rows_by_warps = 16;

// Which products go so: not those of many rows, nor those whose tables lie the other way. A row that is one of many
// adds up by depth, here by lanes: to other bits.
template <class T, class W> bool goes_by_warps(product<T, W> const& p) {
    return p.b_transposed && !p.a_transposed && p.m <= most_rows_by_warps;
}

// Products of the same rows, and what is written beside them, in one launch.
template <beside_products Beside = beside_products::nothing, block_executor Backend, class T, class W,
          std::size_t Products, class Norm = no_norm>
void products_by_warps(context<Backend> const& ctx, std::array<product<T, W>, Products> const& products,
                       T* beside = nullptr, Norm const& norm = {}) {
    auto const run = [&]<int Rows>() {
        few_rows_kernel<T, W, Rows, static_cast<int>(Products), Beside, Norm> kernel{
            .norm = norm, .beside = beside, .of = {}};
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
