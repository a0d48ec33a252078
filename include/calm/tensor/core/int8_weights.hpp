#pragma once
/// \file
/// Weight matrices that are held in int8 instead of float, for generation and evaluation on the cpu.
/// \shows{tests/tensor/int8_weights_test.cpp,both_weights}

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/tensor/core/arena.hpp"
#include "calm/tensor/detail/core/memory.hpp"
#include "calm/tensor/detail/ops/int8_blocks.hpp"

namespace calm {

namespace detail {

// A matrix (n, k) held in int8. Its elements have the addresses of the float matrix that it replaces.
struct int8_matrix {
    float const* begin;  // of that matrix; not to be read
    index_t n, k;
    std::int8_t const* bytes;  // (n, k)
    float const* scales;       // (n, k / int8_block), each with the precision of bf16

    [[nodiscard]] float const* end() const { return begin + n * k; }
    // Row r, from the start of the matrix.
    [[nodiscard]] int8_pointer row(index_t r) const { return int8_pointer{bytes, scales} + r * k; }
    // Reads row r as float.
    void read_row(index_t r, float* to) const {
        auto const from = row(r);
        for (index_t i = 0; i < k; ++i) to[i] = from[i];
    }
};

}  // namespace detail

/// Holds matrices in int8 by blocks of 32 weights with one scale, in 9 bits per weight. A matrix that is added loses
/// the memory of its float values: only operations with a context that uses this object (`use_int8_weights`) may still
/// read it, any other access to it fails. So this object must be destroyed before the memory of the matrices is. A
/// matrix whose rows are no multiple of 32 stays as it is.
class int8_weights {
public:
    int8_weights() = default;
    int8_weights(int8_weights const&) = delete;
    int8_weights& operator=(int8_weights const&) = delete;
    ~int8_weights() {
        for (auto const& m : matrices_) protect(m, PROT_READ | PROT_WRITE);
    }

    /// Whether add() takes matrices of these sizes.
    static bool takes(std::span<index_t const> shape) {
        return shape.size() == 2 && shape[0] > 0 && detail::fits_int8_blocks(shape[1]);
    }

    /// Rounds each value of a matrix (n, k) that add() takes to the nearest byte times its block's scale. The largest
    /// magnitude of a block becomes 127 times its scale.
    void add(float* values, index_t n, index_t k) {
        index_t const blocks = n * k / detail::int8_block;
        auto* const bytes = memory_.take<std::int8_t>(extents<dyn>(n * k)).data();
        auto* const scales = memory_.take<float>(extents<dyn>(blocks)).data();
        for (index_t b = 0; b < blocks; ++b)
            scales[b] = static_cast<float>(
                detail::quantise_block(values + b * detail::int8_block, bytes + b * detail::int8_block));
        detail::int8_matrix const made{values, n, k, bytes, scales};
        matrices_.insert(std::ranges::upper_bound(matrices_, values, {}, &detail::int8_matrix::begin), made);
        protect(made, PROT_NONE);
    }

    /// The matrix that an address belongs to, or null.
    [[nodiscard]] detail::int8_matrix const* find(float const* p) const {
        auto const after = std::ranges::upper_bound(matrices_, p, {}, &detail::int8_matrix::begin);
        if (after == matrices_.begin() || p >= std::prev(after)->end()) return nullptr;
        return &*std::prev(after);
    }

    [[nodiscard]] std::size_t bytes() const { return memory_.used(); }       ///< that the matrices take
    [[nodiscard]] std::size_t matrices() const { return matrices_.size(); }  ///< number of matrices held

private:
    // The pages wholly within the float values of a matrix: returned to the system and not to be touched, or usable
    // again. Large pages would bring the memory back.
    static void protect(detail::int8_matrix const& m, int protection) noexcept {
        auto const bytes = static_cast<std::size_t>(m.n * m.k) * sizeof(float);
        auto const pages = detail::whole_pages(const_cast<float*>(m.begin), bytes);
        if (pages.empty()) return;
        if (protection == PROT_NONE) {
            ::madvise(pages.data(), pages.size(), MADV_DONTNEED);
            ::madvise(pages.data(), pages.size(), MADV_NOHUGEPAGE);
        }
        ::mprotect(pages.data(), pages.size(), protection);
    }

    arena<> memory_{"int8 weights"};
    std::vector<detail::int8_matrix> matrices_;  // by address
};

}  // namespace calm
