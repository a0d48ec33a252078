#pragma once
// Tiles of a product: a part of C whose sums stay in registers, from panels of B and rows of A.

#include <cstring>
#include <type_traits>

#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"
#include "calm/tensor/detail/kernels/cpu/bf16_pairs.hpp"

namespace calm::detail {

// Rows of C in a tile: all that the registers hold, at two registers per row.
inline constexpr int tile_height = native_bytes == 64 ? 12 : 6;
// Columns of C in a tile: two registers.
template <class T> inline constexpr index_t tile_width = 2 * native_bytes / static_cast<index_t>(sizeof(T));

// Rows of A as tiles read them: element (i, l) is data[i row + l depth]. F is the type of the factors: C's type T, or
// pairs of bf16 that are neighbours along the depth.
template <class F> struct rows_of_a {
    F const* data;
    index_t row;
    index_t depth;
};

// Where the sums of a tile go: c (rows, columns) = start + sums, or the sums alone if start is null. Rows of start are
// start_row apart, 0 for a bias.
template <class T> struct tile_of_c {
    T* c;
    index_t c_row;
    T const* start;
    index_t start_row;
    index_t rows;
    index_t columns;
};

// Columns of B as tiles read them: tile_width elements from data, and `row` elements on to the next step of the depth.
template <class F> struct columns_of_b {
    F const* data;
    index_t row;
};

// Adds Rows rows of A times columns of B to what `to` starts with; to.rows <= Rows of them are stored. Every element is
// summed in the order of the depth, whatever Rows is.
template <int Rows, class F, class T>
void multiply_tile(index_t depth, rows_of_a<F> const& a, columns_of_b<F> b, tile_of_c<T> const& to) {
    static_assert(sizeof(F) == sizeof(T));
    using V = typename vectors_of<T>::native;
    using U = factors_in<V, F>;
    constexpr index_t lanes = tile_width<T> / 2;
    constexpr int a_pointer = 3;  // rows per pointer: x86 addresses reach two strides beyond a register
    constexpr int pointers = (Rows + a_pointer - 1) / a_pointer;
    V sums[Rows][2];
    F const* at[pointers];
    unrolled<Rows>([&](auto i) __attribute__((always_inline)) { sums[i][0] = sums[i][1] = V{}; });
    unrolled<pointers>([&](auto i) __attribute__((always_inline)) { at[i] = a.data + i * a_pointer * a.row; });
    for (index_t l = 0; l < depth; ++l, b.data += b.row) {
        U first, second;
        std::memcpy(&first, b.data, sizeof(U));
        std::memcpy(&second, b.data + lanes, sizeof(U));
        unrolled<Rows>([&](auto i) __attribute__((always_inline)) {
            U const x = broadcast<U>(at[i / a_pointer][i % a_pointer * a.row]);
            add_products(sums[i][0], x, first);
            add_products(sums[i][1], x, second);
        });
        unrolled<pointers>([&](auto i) __attribute__((always_inline)) { at[i] += a.depth; });
    }
    if (to.rows == Rows && to.columns == tile_width<T>) {
        unrolled<Rows>([&](auto i) __attribute__((always_inline)) {
            if (to.start != nullptr) {
                V first, second;
                std::memcpy(&first, to.start + i * to.start_row, sizeof(V));
                std::memcpy(&second, to.start + i * to.start_row + lanes, sizeof(V));
                sums[i][0] += first;
                sums[i][1] += second;
            }
            std::memcpy(to.c + i * to.c_row, &sums[i][0], sizeof(V));
            std::memcpy(to.c + i * to.c_row + lanes, &sums[i][1], sizeof(V));
        });
        return;
    }
    T row[Rows][tile_width<T>];
    std::memcpy(row, sums, sizeof(row));
    for (index_t i = 0; i < to.rows; ++i)
        for (index_t j = 0; j < to.columns; ++j)
            to.c[i * to.c_row + j] = row[i][j] + (to.start != nullptr ? to.start[i * to.start_row + j] : T{});
}

// For at most tile_height rows, by the smallest tile that has them.
template <class F, class T>
void multiply_rows(index_t depth, rows_of_a<F> const& a, columns_of_b<F> const& b, tile_of_c<T> const& to) {
    constexpr int third = tile_height / 3;
    if (to.rows > 2 * third)
        multiply_tile<tile_height>(depth, a, b, to);
    else if (to.rows > third)
        multiply_tile<2 * third>(depth, a, b, to);
    else
        multiply_tile<third>(depth, a, b, to);
}

}  // namespace calm::detail
