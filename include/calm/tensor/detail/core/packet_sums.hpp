#pragma once
// Sums sixteen packets at once.

#include <type_traits>
#include <utility>

#include "calm/tensor/core/packet.hpp"

namespace calm::detail {

// f(0), f(1) .. f(N - 1), each index a compile-time constant: N results stay in registers.
template <int N, class F> [[gnu::always_inline]] inline void unrolled(F const& f) {
    [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
        (f(std::integral_constant<int, I>{}), ...);
    }
    (std::make_integer_sequence<int, N>{});
}

// The index of the packet whose sum is number k: k with its bits reversed.
constexpr int packet_of_sum(int k) {
    return (k & 1) << 3 | (k & 2) << 1 | (k & 4) >> 1 | (k & 8) >> 3;
}

// s[k] = sum(v[packet_of_sum(k)]), bit-identical.
template <class V> [[gnu::always_inline]] inline void sums16(lane_t<V>* s, V const (&v)[16]) {
    if constexpr (lanes<V> == 16 && native_bytes == 64) {
        // The tree of sum() in four levels, for all sixteen at once. A level adds two vectors made from each pair: one
        // by blending halves, which is cheap, one by shuffling the other halves.
        V a[8], b[4], c[2];
        unrolled<8>([&](auto i) __attribute__((always_inline)) {
            a[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30,
                                           31) +
                   __builtin_shufflevector(v[2 * i], v[2 * i + 1], 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                           22, 23);
        });
        unrolled<4>([&](auto i) __attribute__((always_inline)) {
            b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30,
                                           31) +
                   __builtin_shufflevector(a[2 * i], a[2 * i + 1], 4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25,
                                           26, 27);
        });
        unrolled<2>([&](auto i) __attribute__((always_inline)) {
            c[i] = __builtin_shufflevector(b[2 * i], b[2 * i + 1], 0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30,
                                           31) +
                   __builtin_shufflevector(b[2 * i], b[2 * i + 1], 2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15,
                                           28, 29);
        });
        store(s, V(__builtin_shufflevector(c[0], c[1], 0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31) +
                   __builtin_shufflevector(c[0], c[1], 1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30)));
    } else
        unrolled<16>([&](auto k) __attribute__((always_inline)) { s[k] = sum(v[packet_of_sum(k)]); });
}

}  // namespace calm::detail
