#pragma once
// Values rounded to bf16, two in 32 bits: a processor with AVX512-BF16 multiplies twice as many of them per second.

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/core/packet.hpp"
#include "calm/tensor/detail/kernels/cpu/widen.hpp"

namespace calm::detail {

// Two neighbours along the depth of a product, the first in the lower half.
using bf16_pair = std::uint32_t;

using native_pairs = native_wholes;
inline constexpr index_t pairs_in_a_register = native_bytes / 4;

// The register type of factors stored as F, for sums in V.
template <class V, class F> using factors_in = std::conditional_t<std::is_same_v<F, bf16_pair>, native_pairs, V>;

// sums += x y, in each lane.
template <class V> [[gnu::always_inline]] inline void add_products(V& sums, V const& x, V const& y) {
    sums += x * y;
}
// In each lane, sums += both products of a pair. Subnormal values count as zero if the processor has the instruction;
// elsewhere this takes four operations.
[[gnu::always_inline]] inline void add_products(native_floats& sums, native_pairs const& x, native_pairs const& y) {
#ifdef __AVX512BF16__
    sums = _mm512_dpbf16_ps(sums, std::bit_cast<__m512bh>(x), std::bit_cast<__m512bh>(y));
#else
    auto const low = [](native_pairs const& z) { return std::bit_cast<native_floats>(z << 16U); };
    auto const high = [](native_pairs const& z) { return std::bit_cast<native_floats>(z & 0xFFFF0000U); };
    sums += high(x) * high(y);
    sums += low(x) * low(y);
#endif
}

// Pairs of values rounded to nearest with ties to even; a NaN stays NaN.
[[gnu::always_inline]] inline native_pairs pairs_of(native_floats const& first, native_floats const& second) {
#ifdef __AVX512BF16__
    using halves = std::uint16_t __attribute__((vector_size(native_bytes)));
    auto const one_by_one = std::bit_cast<halves>(_mm512_cvtne2ps_pbh(second, first));
    return [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
        return std::bit_cast<native_pairs>(
            __builtin_shufflevector(one_by_one, one_by_one, (I % 2 * pairs_in_a_register + I / 2)...));
    }
    (std::make_integer_sequence<int, 2 * static_cast<int>(pairs_in_a_register)>());
#else
    auto const rounded = [](native_floats const& v) {
        auto const bits = std::bit_cast<native_pairs>(v);
        auto const is_nan = std::bit_cast<native_pairs>(v != v);
        native_pairs const sum = bits + 0x7FFFU + (bits >> 16U & 1U);
        return (sum & ~is_nan) | ((bits | 0x400000U) & is_nan);
    };
    return rounded(first) >> 16U | (rounded(second) & 0xFFFF0000U);
#endif
}

// A register of n values from x, zero-padded; n may be negative or more than a register holds.
[[gnu::always_inline]] inline native_floats some_of(float const* x, index_t n) {
    if (n <= 0) return native_floats{};
    if (n >= pairs_in_a_register) return widened<native_floats>(x, pairs_in_a_register);  // a constant size
    return widened<native_floats>(x, n);
}

// Pairs of the n values from x, at most two registers of them, zero-padded.
[[gnu::always_inline]] inline native_pairs pairs_from(float const* x, index_t n) {
    native_floats const first = some_of(x, n);
    native_floats const second = some_of(x + pairs_in_a_register, n - pairs_in_a_register);
#ifdef __AVX512BF16__
    return std::bit_cast<native_pairs>(_mm512_cvtne2ps_pbh(second, first));
#else
    return [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
        return pairs_of(__builtin_shufflevector(first, second, 2 * I...),
                        __builtin_shufflevector(first, second, 2 * I + 1 ...));
    }
    (std::make_integer_sequence<int, static_cast<int>(pairs_in_a_register)>());
#endif
}

}  // namespace calm::detail
