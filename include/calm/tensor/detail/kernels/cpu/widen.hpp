#pragma once
// Loads the values of a factor for products: as they are stored, or widened as they are read.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/core/packet.hpp"

namespace calm::detail {

// As many 16-bit values as a register has of 32 bits. Written out for nvcc, as in packet.hpp.
using native_halves = std::uint16_t __attribute__((vector_size(native_bytes / 2)));
using native_wholes = std::uint32_t __attribute__((vector_size(native_bytes)));
using native_floats = vectors_of<float>::native;

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

}  // namespace calm::detail
