#pragma once
// Products of bytes: each 32-bit lane adds up four of them, exactly. Rows that are stored once and multiplied often lie
// in panels: as many rows as a register has lanes, four bytes of each side by side.

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"
#include "calm/tensor/detail/kernels/cpu/widen.hpp"

namespace calm::detail {

inline constexpr index_t panel_rows = native_bytes / 4;

// As many bytes as a register has 32-bit lanes.
using unsigned_bytes = std::uint8_t __attribute__((vector_size(native_bytes / 4)));
using signed_bytes = std::int8_t __attribute__((vector_size(native_bytes / 4)));

// Whether the target has an instruction for these products (VPDPBUSD). Otherwise they take many, and are no faster than
// products of float.
#ifdef __AVX512VNNI__
inline constexpr bool has_byte_products = true;
#else
inline constexpr bool has_byte_products = false;
#endif

// In each lane, sums += the dot product of the four bytes 0 .. 255 of x and the four bytes -128 .. 127 of y.
[[gnu::always_inline]] inline void add_byte_products(native_integers& sums, native_integers const& x,
                                                     native_integers const& y) {
#ifdef __AVX512VNNI__
    sums = std::bit_cast<native_integers>(
        _mm512_dpbusd_epi32(std::bit_cast<__m512i>(sums), std::bit_cast<__m512i>(x), std::bit_cast<__m512i>(y)));
#else
    for (int byte = 0; byte < 4; ++byte) sums += ((x >> (8 * byte)) & 255) * ((y << (24 - 8 * byte)) >> 24);
#endif
}

// sums = Rows rows of bytes, `row` bytes apart from x on, times Panels consecutive panels of depth * 4 bytes per row.
template <int Rows, int Panels>
[[gnu::always_inline]] inline void multiply_bytes(native_integers (&sums)[Rows][Panels], index_t depth,
                                                  std::int8_t const* x, index_t row, std::uint8_t const* panels) {
    unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
        unrolled<Panels>([&](auto p) __attribute__((always_inline)) { sums[r][p] = native_integers{}; });
    });
    for (index_t l = 0; l < depth; ++l, panels += native_bytes) {
        native_integers columns[Panels];
        unrolled<Panels>([&](auto p) __attribute__((always_inline)) {
            std::memcpy(&columns[p], panels + p * depth * native_bytes, native_bytes);
        });
        unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
            std::int32_t word;
            std::memcpy(&word, x + r * row + 4 * l, 4);
            native_integers const four = native_integers{} + word;
            unrolled<Panels>([&](auto p)
                                 __attribute__((always_inline)) { add_byte_products(sums[r][p], columns[p], four); });
        });
    }
}

// A bit for each lane in which x is at least y.
[[gnu::always_inline]] inline std::uint32_t lanes_at_least(native_floats const& x, float y) {
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask(std::bit_cast<__m512>(x), _mm512_set1_ps(y), _CMP_GE_OQ);
#else
    std::uint32_t lanes = 0;
    for (unsigned l = 0; l < panel_rows; ++l) lanes |= static_cast<std::uint32_t>(x[l] >= y) << l;
    return lanes;
#endif
}

// A bound on the fp32 rounding error of a sum of D products and of results computed from it, relative to the product of
// the norms.
inline float rounding_of_sum(index_t D) {
    return static_cast<float>(D + 64) * 0x1p-23F;
}

// A row as scale * bytes + rest.
struct row_in_bytes {
    float scale = 0;
    float norm = std::numeric_limits<float>::infinity();  // upper bound on the norm of the row
    float rest = 0;                                       // upper bound on the norm of the rest
    // Whether the bounds hold for fp32 products with rows of norm up to 1e12. False if this row is longer than that, or
    // so short, but not zero, that underflow matters.
    bool is_fit = false;
    bool is_zero = false;

    // Rounds D values to integers -127 .. 127 and calls to(i, a register of the integers from i on, zero-padded).
    template <class W, std::invocable<index_t, native_integers> To>
    static row_in_bytes of(W const* row, index_t D, To const& to) {
        constexpr float shortest = 1e-12F, longest = 1e12F, least_scale = 1e-30F;
        auto const in_registers = [&](auto const& f) __attribute__((always_inline)) {
            index_t i = 0;
            for (; i + panel_rows <= D; i += panel_rows) f(i, widened<native_floats>(row + i, panel_rows));
            if (i < D) f(i, widened<native_floats>(row + i, D - i));
        };
        auto const length = [](native_floats const& squares) {
            float sum = 0;
            for (index_t l = 0; l < panel_rows; ++l) sum += squares[l];
            return std::sqrt(sum);
        };
        native_floats most{}, squares{}, left{};
        in_registers([&](index_t, native_floats const& x) __attribute__((always_inline)) {
            most = x > most ? x : most;
            most = -x > most ? -x : most;
            squares += x * x;
        });
        row_in_bytes made;
        float const norm = length(squares);
        if (!(norm <= longest)) return made;
        float largest = 0;
        for (index_t l = 0; l < panel_rows; ++l) largest = std::max(largest, most[l]);
        made.scale = largest / 127;
        float const steps = made.scale >= least_scale ? 1 / made.scale : 0;
        in_registers([&](index_t i, native_floats const& x) __attribute__((always_inline)) {
            constexpr float whole = 0x1.8p23F;  // adding it rounds to an integer
            native_floats const rounded = (x * steps + whole) - whole;
            native_floats const behind = x - made.scale * rounded;
            left += behind * behind;
            to(i, __builtin_convertvector(rounded, native_integers));
        });
        float const rounding = rounding_of_sum(D);
        made.norm = std::max(norm * (1 + rounding), shortest);
        made.rest = length(left) * (1 + rounding) + made.norm * 0x1p-22F;
        made.is_zero = largest == 0;
        made.is_fit = made.is_zero || norm >= shortest;
        return made;
    }
};

}  // namespace calm::detail
