#pragma once
// Rows sorted by id, as portable block kernels: a stable radix sort of the row numbers, eight bits of the ids per pass,
// two kernels per pass. It needs no atomics, so rows with equal ids keep their order.

#include <cstdint>

#include "calm/tensor/core/arena.hpp"
#include "calm/tensor/core/kernel.hpp"

namespace calm::detail {

// Rows as sorted by the lower bits, and the next digit of their ids. Each block has one tile of rows.
template <class Id> struct rows_to_sort {
    static constexpr int digits = 256;
    static constexpr index_t tile = 2048;
    Id const* ids;
    row_id const* order;  // null: the original order
    index_t n;
    int shift;

    [[nodiscard]] CALM_HD row_id row(index_t i) const { return order == nullptr ? static_cast<row_id>(i) : order[i]; }
    [[nodiscard]] CALM_HD std::int16_t digit(row_id row) const {
        return static_cast<std::int16_t>(static_cast<std::uint64_t>(ids[row]) >> shift & (digits - 1));
    }
    [[nodiscard]] CALM_HD index_t tiles() const { return blocks_for(n, tile); }
    // Number of rows in a tile.
    [[nodiscard]] CALM_HD int rows_of(index_t block) const {
        index_t const left = n - block * tile;
        return static_cast<int>(left < tile ? left : tile);
    }
};

// counts (tiles, digits): how many rows of a tile have each digit. One thread per digit.
template <class Id> struct count_digits_kernel {
    using sorting = rows_to_sort<Id>;
    static constexpr int threads = sorting::digits;
    struct shared {
        std::int16_t digit[sorting::tile];
    };
    sorting all;
    index_t* counts;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        int const rows = all.rows_of(block);
        b.phase([&](int t) {
            for (int i = t; i < rows; i += threads) s.digit[i] = all.digit(all.row(block * sorting::tile + i));
        });
        b.phase([&](int t) {
            index_t count = 0;
            for (int i = 0; i < rows; ++i) count += s.digit[i] == t ? 1 : 0;
            counts[block * threads + t] = count;
        });
    }
};

// sorted = the rows ordered by this digit; equal digits keep their order. A thread places the rows of one digit of a
// tile, after all rows with smaller digits and after the rows with its digit in earlier tiles.
template <class Id> struct put_digits_kernel {
    using sorting = rows_to_sort<Id>;
    static constexpr int threads = sorting::digits;
    struct shared {
        std::int16_t digit[sorting::tile];
        row_id row[sorting::tile];
        index_t before[threads];  // in earlier tiles
        index_t total[threads];   // in all tiles
    };
    sorting all;
    index_t const* counts;
    row_id* sorted;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        int const rows = all.rows_of(block);
        b.phase([&](int t) {
            for (int i = t; i < rows; i += threads) {
                s.row[i] = all.row(block * sorting::tile + i);
                s.digit[i] = all.digit(s.row[i]);
            }
            index_t total = 0;
            for (index_t other = 0; other < all.tiles(); ++other) {
                if (other == block) s.before[t] = total;
                total += counts[other * threads + t];
            }
            s.total[t] = total;
        });
        b.phase([&](int t) {
            index_t place = s.before[t];
            for (int smaller = 0; smaller < t; ++smaller) place += s.total[smaller];
            for (int i = 0; i < rows; ++i)
                if (s.digit[i] == t) sorted[place++] = s.row[i];
        });
    }
};

// The numbers of n > 0 rows in the order of their ids, which are below V. In ctx.workspace.
template <block_backend Backend, class Id>
row_id const* order_of_rows(context<Backend>& ctx, Id const* ids, index_t n, index_t V) {
    using sorting = rows_to_sort<Id>;
    sorting all{ids, nullptr, n, 0};
    row_id* const rooms[] = {ctx.workspace.template take<row_id>(extents<dyn>(n)).data(),
                             ctx.workspace.template take<row_id>(extents<dyn>(n)).data()};
    arena_scope const scope(ctx.workspace);
    auto const counts = ctx.workspace.template take<index_t>(extents<dyn, dyn>(all.tiles(), sorting::digits));
    for (int pass = 0; pass == 0 || (V - 1) >> all.shift > 0; ++pass, all.shift += 8) {
        launch(ctx, all.tiles(), count_digits_kernel<Id>{all, counts.data()});
        launch(ctx, all.tiles(), put_digits_kernel<Id>{all, counts.data(), rooms[pass % 2]});
        all.order = rooms[pass % 2];
    }
    return all.order;
}

}  // namespace calm::detail
