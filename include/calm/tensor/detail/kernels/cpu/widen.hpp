#pragma once
// Loads the values of a factor for products: as they are stored, or widened as they are read.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/core/packet.hpp"
#include "calm/tensor/detail/ops/int8_blocks.hpp"

namespace calm::detail {

// As many 16-bit values as a register has of 32 bits. Written out for nvcc, as in packet.hpp.
using native_halves = std::uint16_t __attribute__((vector_size(native_bytes / 2)));
using native_wholes = std::uint32_t __attribute__((vector_size(native_bytes)));
using native_floats = vectors_of<float>::native;
using native_integers = std::int32_t __attribute__((vector_size(native_bytes)));

// A register of the first n values from p, n > 0, zero-padded. bf16 becomes float exactly, by a shift.
template <class V, class W> [[gnu::always_inline]] inline V widened(W const* p, index_t n) {
    if constexpr (std::is_same_v<W, bf16>) {
        static_assert(std::is_same_v<V, vectors_of<float>::native>, "calm::matmul: bf16 is widened to float alone");
        native_halves stored{};
        std::memcpy(&stored, p, static_cast<std::size_t>(n) * sizeof(W));
        return std::bit_cast<V>(__builtin_convertvector(stored, native_wholes) << 16U);
    } else {
        V v{};
        std::memcpy(&v, p, static_cast<std::size_t>(n) * sizeof(W));
        return v;
    }
}

// As many bytes from p as a register has of 32 bits, as integers. (g++ 12 would convert one at a time.)
[[gnu::always_inline]] inline native_integers words_at(std::int8_t const* p) {
#if defined(__AVX512F__)
    return std::bit_cast<native_integers>(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p))));
#elif defined(__AVX2__)
    return std::bit_cast<native_integers>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<__m128i const*>(p))));
#elif defined(__SSE2__)
    std::int32_t four;
    std::memcpy(&four, p, sizeof(four));
    __m128i const bytes = _mm_cvtsi32_si128(four), pairs = _mm_unpacklo_epi8(bytes, bytes);
    return std::bit_cast<native_integers>(_mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24));
#else
    native_integers words;
    for (int l = 0; l < native_bytes / 4; ++l) words[l] = p[l];
    return words;
#endif
}

// The same of int8 weights. They fill the register, as rows are whole blocks.
template <class V> [[gnu::always_inline]] inline V widened(int8_pointer p, index_t) {
    static_assert(std::is_same_v<V, native_floats>, "calm::matmul: int8 is widened to float alone");
    return __builtin_convertvector(words_at(p.bytes), V) * *p.scales;
}

// Prefetches the element pointed to.
template <class W> [[gnu::always_inline]] inline void prefetch(W const* p) {
    __builtin_prefetch(p);
}
[[gnu::always_inline]] inline void prefetch(int8_pointer p) {
    __builtin_prefetch(p.bytes);
}

}  // namespace calm::detail
