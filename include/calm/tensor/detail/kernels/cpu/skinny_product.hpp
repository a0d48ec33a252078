#pragma once
// Skinny products, of few rows with a table (n, k) in the layout of checkpoints: nothing is packed, and the table is
// read once.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"
#include "calm/tensor/detail/kernels/cpu/widen.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

// Rows of B that all rows of A are multiplied by at a time: they stay in the L1 cache.
inline constexpr int rows_of_b_at_once = 16;

// Elements of C that are summed at a time: as many as the registers hold.
inline constexpr int tile_sums = native_bytes == 64 ? 16 : 8;

// Rows of B that are read in parallel: more streams do not raise the memory bandwidth.
inline constexpr int streams_of_b = 8;

// Rows rows of A from row i, multiplied by tile_sums / Rows rows of B from row j. The order of an element's sum depends
// neither on Rows nor on the rest of its tile. Prefetches the rows of B that come Ahead rows later, if any.
template <int Rows, int Ahead, class T, class W>
[[gnu::always_inline]] inline void skinny_tile(product<T, W> const& p, index_t i, index_t j) {
    using V = typename vectors_of<T>::native;
    constexpr index_t width = sizeof(V) / sizeof(T);
    constexpr int columns = tile_sums / Rows;
    constexpr int streams = std::min(columns, streams_of_b);
    constexpr auto packet_of = [](int q) { return tile_sums == 16 ? packet_of_sum(q) : q; };
    T const* a[Rows];
    factor_pointer<W> b[columns];
    unrolled<Rows>([&](auto r) __attribute__((always_inline)) { a[r] = p.a + (i + r) * p.lda; });
    unrolled<columns>([&](auto c)
                          __attribute__((always_inline)) { b[c] = p.b + std::min<index_t>(j + c, p.n - 1) * p.ldb; });
    index_t const ahead = Ahead > 0 && j + Ahead + columns <= p.n ? Ahead * p.ldb : 0;
    V v[tile_sums];
    unrolled<tile_sums>([&](auto q) __attribute__((always_inline)) { v[q] = V{}; });
    unrolled<columns / streams>([&](auto group) __attribute__((always_inline)) {
        auto const add = [&](index_t l, index_t count, bool fetches) __attribute__((always_inline)) {
            V x[Rows]{};
            unrolled<Rows>([&](auto r) __attribute__((always_inline)) { x[r] = widened<V>(a[r] + l, count); });
            unrolled<streams>([&](auto stream) __attribute__((always_inline)) {
                constexpr int c = group * streams + stream;
                if constexpr (Ahead > 0)
                    if (fetches) prefetch(b[c] + (l + ahead));
                V const y = widened<V>(b[c] + l, count);
                unrolled<Rows>([&](auto r)
                                   __attribute__((always_inline)) { v[packet_of(r * columns + c)] += x[r] * y; });
            });
        };
        index_t l = 0;
        if constexpr (sizeof(W) == 1)  // four steps read a cache line, or less of one
            for (; l + 4 * width <= p.k; l += 4 * width)
                unrolled<4>([&](auto step) __attribute__((always_inline)) { add(l + step * width, width, step == 0); });
        for (; l + width <= p.k; l += width) add(l, width, true);
        if (l < p.k) add(l, p.k - l, true);
    });
    T s[tile_sums];
    if constexpr (tile_sums == 16)
        sums16(s, v);
    else
        unrolled<tile_sums>([&](auto q) __attribute__((always_inline)) {
            packet<T> padded{};
            std::memcpy(&padded, &v[q], sizeof(V));
            s[q] = sum(padded);
        });
    T* const out = p.c + i * p.ldc + j;
    T const* const start = p.bias != nullptr ? p.bias + j : p.accumulates ? out : nullptr;
    index_t const stride = p.bias != nullptr ? 0 : p.ldc;
    if (j + columns <= p.n)
        unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
            T row[columns]{};  // loaded before any store, so that the compiler makes it one vector
            if (start != nullptr) std::memcpy(row, start + r * stride, sizeof(row));
            unrolled<columns>([&](auto c) __attribute__((always_inline)) { row[c] += s[r * columns + c]; });
            std::memcpy(out + r * p.ldc, row, sizeof(row));
        });
    else
        for (index_t r = 0; r < Rows; ++r)
            for (index_t c = 0; j + c < p.n; ++c)
                out[r * p.ldc + c] = (start != nullptr ? start[r * stride + c] : T{}) + s[r * columns + c];
}

// Rows rows of C from row i, columns begin .. end.
template <int Rows, int Ahead = 0, class T, class W>
void skinny_strip(product<T, W> const& p, index_t i, index_t begin, index_t end) {
    for (index_t j = begin; j < end; j += tile_sums / Rows) skinny_tile<Rows, Ahead>(p, i, j);
}

// The most rows of C in a tile.
inline constexpr int most_rows_at_once = tile_sums == 16 ? 4 : 2;

// The first Rows rows of C, columns begin .. end; they bring B into the cache for all rows. With more than four rows
// they prefetch the next block of B. With fewer they prefetch the next tile where the processor does not do so itself.
// That is for values of one or two bytes, where one step reads part of a cache line, and otherwise for several rows of
// A whose tiles are small compared with the L1 cache.
template <int Rows, class T, class W> void first_strip(product<T, W> const& p, index_t begin, index_t end) {
    constexpr index_t small = 1 << 14;  // bytes
    constexpr int tile = tile_sums / Rows;
    if constexpr (Rows == most_rows_at_once)
        if (p.m > 4) return skinny_strip<Rows, rows_of_b_at_once>(p, 0, begin, end);
    if constexpr (sizeof(W) <= 2)
        return skinny_strip<Rows, tile>(p, 0, begin, end);
    else if constexpr (Rows > 1)
        if (tile * p.k * index_t{sizeof(W)} <= small) return skinny_strip<Rows, tile>(p, 0, begin, end);
    skinny_strip<Rows>(p, 0, begin, end);
}

// C = start + A B^T, a block of rows of B at a time, which all rows of A then find in the cache.
template <class T, class W> void skinny_product(product<T, W> const& p) {
    constexpr int most = most_rows_at_once;
    for (index_t begin = 0; begin < p.n; begin += rows_of_b_at_once) {
        index_t const end = std::min<index_t>(p.n, begin + rows_of_b_at_once);
        if (p.m == 1) {
            first_strip<1>(p, begin, end);
            continue;
        }
        index_t i = std::min<index_t>(p.m, most) / 2 * 2;
        i == most ? first_strip<most>(p, begin, end) : first_strip<2>(p, begin, end);
        for (; i + most <= p.m; i += most) skinny_strip<most>(p, i, begin, end);
        if constexpr (most > 2)
            if (i + 2 <= p.m) {
                skinny_strip<2>(p, i, begin, end);
                i += 2;
            }
        if (i < p.m) skinny_strip<1>(p, i, begin, end);
    }
}

// Whether a product can be computed this way, with any number of rows.
template <class T, class W> bool can_be_skinny(product<T, W> const& p) {
    return std::is_floating_point_v<T> && p.b_transposed && !p.a_transposed;
}

// Whether a product is computed this way and not by tiles of a packed B: few rows, and k so long that adding up lanes
// is cheap. Tiles sum along the depth rather than by lanes, so their last bits differ.
template <class T, class W> bool is_skinny(product<T, W> const& p) {
    index_t const most = native_bytes == 32 ? 4 : std::clamp<index_t>(p.k / 4, 4, 64);
    return can_be_skinny(p) && p.m <= most;
}

// Columns of C per task, enough to be worth a thread.
template <class T, class W> index_t skinny_slice(product<T, W> const& p) {
    constexpr index_t worthwhile = 65536;  // multiplications
    return (worthwhile / std::max<index_t>(1, p.m * p.k) + 32) / 32 * 32;
}

}  // namespace calm::detail
