#pragma once
// Products of few rows with a table stored as checkpoints store it, (n, k): nothing is packed, and the table is read
// once.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "calm/tensor/cpu/widen.hpp"
#include "calm/tensor/extents.hpp"
#include "calm/tensor/packet_sums.hpp"
#include "calm/tensor/product.hpp"

namespace calm::detail {

// Rows of B that all rows of A go through at once: they stay in the first cache.
inline constexpr int rows_of_b_at_once = 16;

// Elements of C that are added up at once: as many as the registers hold.
inline constexpr int tile_sums = native_bytes == 64 ? 16 : 8;

// Rows of B that are read side by side: memory brings more of them no faster.
inline constexpr int streams_of_b = 8;

// Rows rows of A from row i by tile_sums / Rows rows of B from row j. Every element is added up in the same order,
// whatever Rows is and whoever shares its tile. It calls for the rows of B that come Ahead rows behind, if any.
template <int Rows, int Ahead, class T, class W>
[[gnu::always_inline]] inline void tile_of_few_rows(product<T, W> const& p, index_t i, index_t j) {
    using V = typename vectors_of<T>::native;
    constexpr index_t width = sizeof(V) / sizeof(T);
    constexpr int columns = tile_sums / Rows;
    constexpr int streams = std::min(columns, streams_of_b);
    constexpr auto packet_of = [](int q) { return tile_sums == 16 ? packet_of_sum(q) : q; };
    T const* a[Rows];
    W const* b[columns];
    unrolled<Rows>([&](auto r) __attribute__((always_inline)) { a[r] = p.a + (i + r) * p.lda; });
    unrolled<columns>([&](auto c)
                          __attribute__((always_inline)) { b[c] = p.b + std::min<index_t>(j + c, p.n - 1) * p.ldb; });
    index_t const ahead = Ahead > 0 && j + Ahead + columns <= p.n ? Ahead * p.ldb : 0;
    V v[tile_sums];
    unrolled<tile_sums>([&](auto q) __attribute__((always_inline)) { v[q] = V{}; });
    unrolled<columns / streams>([&](auto group) __attribute__((always_inline)) {
        auto const add = [&](index_t l, index_t count) __attribute__((always_inline)) {
            V x[Rows]{};
            unrolled<Rows>([&](auto r) __attribute__((always_inline)) { x[r] = widened<V>(a[r] + l, count); });
            unrolled<streams>([&](auto stream) __attribute__((always_inline)) {
                constexpr int c = group * streams + stream;
                if constexpr (Ahead > 0) __builtin_prefetch(b[c] + l + ahead);
                V const y = widened<V>(b[c] + l, count);
                unrolled<Rows>([&](auto r)
                                   __attribute__((always_inline)) { v[packet_of(r * columns + c)] += x[r] * y; });
            });
        };
        index_t l = 0;
        for (; l + width <= p.k; l += width) add(l, width);
        if (l < p.k) add(l, p.k - l);
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
            T row[columns]{};  // loaded before anything is stored: the compiler takes it for one vector
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
void strip_of_few_rows(product<T, W> const& p, index_t i, index_t begin, index_t end) {
    for (index_t j = begin; j < end; j += tile_sums / Rows) tile_of_few_rows<Rows, Ahead>(p, i, j);
}

// Rows of C that are added up together.
inline constexpr int most_rows_at_once = tile_sums == 16 ? 4 : 2;

// The first Rows rows of C, columns begin .. end, which bring B for all rows: with more than four rows those of B that
// are worked on next. With fewer it is the next tile's, where the processor does not see by itself what is read next:
// numbers of two bytes, of which a step reads half a line, and of others several rows of A whose tiles are small beside
// the first cache.
template <int Rows, class T, class W> void first_strip(product<T, W> const& p, index_t begin, index_t end) {
    constexpr index_t small = 1 << 14;  // bytes
    constexpr int tile = tile_sums / Rows;
    if constexpr (Rows == most_rows_at_once)
        if (p.m > 4) return strip_of_few_rows<Rows, rows_of_b_at_once>(p, 0, begin, end);
    if constexpr (sizeof(W) == 2)
        return strip_of_few_rows<Rows, tile>(p, 0, begin, end);
    else if constexpr (Rows > 1)
        if (tile * p.k * index_t{sizeof(W)} <= small) return strip_of_few_rows<Rows, tile>(p, 0, begin, end);
    strip_of_few_rows<Rows>(p, 0, begin, end);
}

// C = start + A B^T, some rows of B at a time, which all rows of A then find in the cache.
template <class T, class W> void product_of_few_rows(product<T, W> const& p) {
    constexpr int most = most_rows_at_once;
    for (index_t begin = 0; begin < p.n; begin += rows_of_b_at_once) {
        index_t const end = std::min<index_t>(p.n, begin + rows_of_b_at_once);
        if (p.m == 1) {
            first_strip<1>(p, begin, end);
            continue;
        }
        index_t i = std::min<index_t>(p.m, most) / 2 * 2;
        i == most ? first_strip<most>(p, begin, end) : first_strip<2>(p, begin, end);
        for (; i + most <= p.m; i += most) strip_of_few_rows<most>(p, i, begin, end);
        if constexpr (most > 2)
            if (i + 2 <= p.m) {
                strip_of_few_rows<2>(p, i, begin, end);
                i += 2;
            }
        if (i < p.m) strip_of_few_rows<1>(p, i, begin, end);
    }
}

// Which products go so, and not through tiles of a packed B: not those of many rows, nor where k is so short that the
// sums of lanes cost more than what they sum. A row that is one of many adds up by depth, here by lanes: to other bits.
template <class T, class W> bool has_few_rows(product<T, W> const& p) {
    index_t const most = native_bytes == 32 ? 4 : std::clamp<index_t>(p.k / 4, 4, 64);
    return std::is_floating_point_v<T> && p.b_transposed && !p.a_transposed && p.m <= most;
}

// Columns of C a task, so many that it is worth a thread.
template <class T, class W> index_t few_rows_slice(product<T, W> const& p) {
    constexpr index_t worthwhile = 65536;  // multiplications
    return (worthwhile / std::max<index_t>(1, p.m * p.k) + 32) / 32 * 32;
}

}  // namespace calm::detail
