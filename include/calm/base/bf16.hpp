#pragma once
/// \file
/// 16-bit floating-point numbers. bfloat16 is the upper half of a float: the same exponent range, 8 bits of
/// significand.
/// \shows{tests/base/bf16_test.cpp,a_float_is_rounded_as_a_double_is}

#include <algorithm>
#include <bit>
#include <cstdint>

namespace calm {

namespace detail {

// The bits of x in a 16-bit format with `exponent_bits` exponent bits, rounded once, to nearest with ties to even.
// Overflow gives infinity; NaN stays NaN.
template <int exponent_bits> constexpr std::uint16_t to_16_bits(double x) {
    constexpr int fraction_bits = 15 - exponent_bits;
    constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    constexpr std::uint64_t infinity = std::uint64_t{(1U << exponent_bits) - 1} << fraction_bits;
    auto const bits = std::bit_cast<std::uint64_t>(x);
    std::uint64_t const sign = bits >> 63 << 15;
    auto const exponent = static_cast<int>(bits >> 52 & 0x7FFU);
    std::uint64_t const fraction = bits & ((std::uint64_t{1} << 52) - 1);
    if (exponent == 0x7FF) {
        std::uint64_t const quiet = std::uint64_t{1} << (fraction_bits - 1);
        return static_cast<std::uint16_t>(sign | infinity |
                                          (fraction == 0 ? 0 : quiet | fraction >> (52 - fraction_bits)));
    }
    int const biased = exponent - 1023 + bias;
    int const shift = 52 - fraction_bits + (biased < 1 ? 1 - biased : 0);  // subnormals share one exponent
    if (shift > 53) return static_cast<std::uint16_t>(sign);               // below half of the smallest
    std::uint64_t const significand = fraction | (exponent == 0 ? 0 : std::uint64_t{1} << 52);
    std::uint64_t const odd = significand >> shift & 1U;
    std::uint64_t const rounded = (significand + (std::uint64_t{1} << (shift - 1)) - 1 + odd) >> shift;
    // A carry out of the fraction increments the exponent.
    std::uint64_t const value = rounded + (biased < 1 ? 0 : static_cast<std::uint64_t>(biased - 1) << fraction_bits);
    return static_cast<std::uint16_t>(sign | std::min(value, infinity));
}

// The upper half of a float's bits after adding `added`, a value of the lower half's magnitude. NaN stays NaN.
constexpr std::uint16_t upper_half(std::uint32_t bits, std::uint32_t added) {
    bool const is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return static_cast<std::uint16_t>((is_nan ? bits | 0x400000U : bits + added) >> 16U);
}
// Rounds to nearest with ties to even.
constexpr std::uint16_t nearest_upper_half(std::uint32_t bits) {
    return upper_half(bits, 0x7FFFU + (bits >> 16U & 1U));
}

}  // namespace detail

/// A bfloat16 in memory. Arithmetic converts it to float, which is exact.
struct bf16 {
    std::uint16_t bits;  ///< sign, 8 of exponent, 7 of fraction

    bf16() = default;
    /// Rounds x to nearest with ties to even. Overflow gives infinity; NaN stays NaN.
    constexpr explicit bf16(double x) : bits(detail::to_16_bits<8>(x)) {}
    /// Rounds a float in few operations: float and bfloat16 have the same exponent range.
    constexpr explicit bf16(float x) : bits(detail::nearest_upper_half(std::bit_cast<std::uint32_t>(x))) {}
    /// From raw bits.
    static constexpr bf16 of(std::uint16_t bits) {
        bf16 x;  // NOLINT(cppcoreguidelines-pro-type-member-init): the next line does it
        x.bits = bits;
        return x;
    }
    /// Stochastic rounding with 16 random bits: x becomes the bf16 above it with probability (x - below) / (above -
    /// below), otherwise the bf16 below it; infinity counts as 2^128. The expected value is x. Representable values and
    /// NaN stay.
    static constexpr bf16 at_random(float x, std::uint32_t random) {
        return of(detail::upper_half(std::bit_cast<std::uint32_t>(x), random & 0xFFFFU));
    }
    /// Exact.
    constexpr operator float() const {  // NOLINT(google-explicit-constructor): nothing is lost
        return std::bit_cast<float>(std::uint32_t{bits} << 16U);
    }
};

/// How weights are rounded to the bf16 that matrix products read.
enum class weight_rounding {
    nearest,     ///< ties to even
    stochastic,  ///< to either neighbour, with the weight as expected value: bf16::at_random
};

namespace detail {
template <class T> struct computed { using type = T; };
template <> struct computed<bf16> { using type = float; };
}  // namespace detail

/// The type in which values stored as T are computed.
template <class T> using computed_in = typename detail::computed<T>::type;

}  // namespace calm
