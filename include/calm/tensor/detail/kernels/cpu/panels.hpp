#pragma once
// Factors of a product as tiles read them: consecutive panels (depth, width), with zeros past the last column. They are
// packed as T from what P points to, a pointer or int8_pointer.

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"
#include "calm/tensor/detail/kernels/cpu/widen.hpp"

namespace calm::detail {

// Packs rows begin .. end of x (depth, columns) into panels of Width columns that are `panel` elements apart. Each row
// is read from end to end, as it may come from main memory.
template <int Width, class T, class P>
void pack_columns(T* panels, index_t panel, P x, index_t stride, index_t columns, index_t begin, index_t end) {
    index_t const whole = columns / Width;
    for (index_t l = begin; l < end; ++l) {
        P const row = x + l * stride;
        T* const out = panels + l * Width;
        for (index_t q = 0; q < whole; ++q)
            if constexpr (std::is_convertible_v<P, T const*>)
                std::memcpy(out + q * panel, row + q * Width, Width * sizeof(T));
            else
                for (index_t j = 0; j < Width; ++j) out[q * panel + j] = row[q * Width + j];
        if (index_t const rest = columns - whole * Width; rest > 0) {
            T* const last = out + whole * panel;
            for (index_t j = 0; j < Width; ++j) last[j] = j < rest ? row[whole * Width + j] : T{};
        }
    }
}

// Exchanges the off-diagonal blocks of two rows of a square: one stage of its transposition.
template <int Block, class V> [[gnu::always_inline]] inline void exchange_blocks(V& low, V& high) {
    constexpr int count = sizeof(V) / sizeof(low[0]);
    [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
        V const first = __builtin_shufflevector(low, high, ((I & Block) != 0 ? count + I - Block : I)...);
        high = __builtin_shufflevector(low, high, ((I & Block) != 0 ? count + I : I + Block)...);
        low = first;
    }
    (std::make_integer_sequence<int, count>());
}

// Transposes a square as wide as a register.
template <class V, std::size_t width> [[gnu::always_inline]] inline void turn(V (&v)[width]) {
    static_assert(width == sizeof(V) / sizeof(v[0][0]));
    constexpr auto size = static_cast<int>(width);
    auto const stage = [&](auto block) __attribute__((always_inline)) {
        if constexpr (block < size)
            unrolled<size>([&](auto i) __attribute__((always_inline)) {
                if constexpr ((i & block) == 0) exchange_blocks<block>(v[i], v[i + block]);
            });
    };
    stage(std::integral_constant<int, 1>());
    stage(std::integral_constant<int, 2>());
    stage(std::integral_constant<int, 4>());
    stage(std::integral_constant<int, 8>());
}

// Transposes such a square in memory: out[j out_stride + i] = x[i stride + j].
template <class T, class P>
[[gnu::always_inline]] inline void turn_square(T* out, index_t out_stride, P x, index_t stride) {
    using V = typename vectors_of<T>::native;
    constexpr int width = sizeof(V) / sizeof(T);
    V v[width];
    unrolled<width>([&](auto i) __attribute__((always_inline)) { v[i] = widened<V>(x + i * stride, width); });
    turn(v);
    unrolled<width>([&](auto i)
                        __attribute__((always_inline)) { std::memcpy(out + i * out_stride, &v[i], sizeof(V)); });
}

// Packs one panel of at most Width columns of x (columns, depth).
template <int Width, class T, class P> void pack_turned(T* panel, P x, index_t stride, index_t columns, index_t depth) {
    constexpr index_t square = sizeof(typename vectors_of<T>::native) / sizeof(T);
    for (index_t j = 0; j < Width; j += square) {
        index_t l = 0;
        if (j + square <= columns)
            for (; l + square <= depth; l += square)
                turn_square(panel + l * Width + j, Width, x + j * stride + l, stride);
        for (; l < depth; ++l)
            for (index_t i = j; i < j + square; ++i) panel[l * Width + i] = i < columns ? x[i * stride + l] : T{};
    }
}

}  // namespace calm::detail
