#pragma once
// Weights in int8: a row is divided into blocks of 32 bytes, and each block has a scale. A weight is its byte times the
// scale, which is exact in float, because a scale has the precision of bf16.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm::detail {

// Type tag of such weights in products; an element occupies one byte.
struct int8_weight {
    std::int8_t byte;
};

inline constexpr index_t int8_block = 32;  // weights that share a scale

// Points to an element of a matrix of such weights, whose rows are whole blocks. Moves by whole blocks, and at most
// once by a part of one.
struct int8_pointer {
    std::int8_t const* bytes;
    float const* scales;

    friend int8_pointer operator+(int8_pointer p, index_t n) { return {p.bytes + n, p.scales + n / int8_block}; }
    int8_pointer& operator+=(index_t n) { return *this = *this + n; }
    float operator[](index_t i) const { return static_cast<float>(bytes[i]) * scales[i / int8_block]; }
};

// How a product points to a factor that is stored as W.
template <class W> struct pointer_to_factor { using type = W const*; };
template <> struct pointer_to_factor<int8_weight> { using type = int8_pointer; };
template <class W> using factor_pointer = typename pointer_to_factor<W>::type;

// Whether a matrix with rows of k can be held so.
constexpr bool fits_int8_blocks(index_t k) {
    return k > 0 && k % int8_block == 0;
}

// Rounds one block to bytes -127 .. 127 and returns its scale, the largest magnitude / 127 in bf16. Values that were
// bytes times a scale give the same bytes and scale again, because the largest magnitude always becomes 127.
inline bf16 quantise_block(float const* x, std::int8_t* bytes) {
    float most = 0;
    for (index_t i = 0; i < int8_block; ++i) most = std::max(most, std::abs(x[i]));
    constexpr float smallest = std::numeric_limits<float>::min();
    bf16 scale(most / 127);
    if (static_cast<float>(scale) * 127 > std::numeric_limits<float>::max()) --scale.bits;
    if (static_cast<float>(scale) < smallest) scale = bf16(0.0F);  // subnormal weights become zero
    float const steps = static_cast<float>(scale) > 0 ? 1 / static_cast<float>(scale) : 0;
    for (index_t i = 0; i < int8_block; ++i) {
        constexpr float whole = 0x1.8p23F;  // adding it rounds to an integer, ties to even
        float const rounded = (x[i] * steps + whole) - whole;
        bytes[i] = static_cast<std::int8_t>(std::clamp(rounded, -127.0F, 127.0F));
    }
    return scale;
}

}  // namespace calm::detail
