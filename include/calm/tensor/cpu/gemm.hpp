#pragma once
// Products on the CPU: serial Eigen on slices of our own. The only header that includes Eigen.
// Empty under nvcc, which Eigen stays out of.

#ifndef __CUDACC__

#ifndef EIGEN_DONT_PARALLELIZE
#define EIGEN_DONT_PARALLELIZE
#endif
#include <Eigen/Core>
#include <bit>
#include <type_traits>

#include "calm/tensor/cpu/few_rows.hpp"
#include "calm/tensor/product.hpp"
#include "calm/tensor/rows.hpp"

namespace calm::detail {

// Elements of Eigen's panels, into which it packs parts of both factors; 0 for those that fit on the stack.
struct panel_sizes {
    index_t left = 0;
    index_t right = 0;
};

// Memory for panels of those sizes. Where it does not suffice, Eigen allocates.
template <class T> struct panel_memory {
    panel_sizes sizes = {};
    T* left = nullptr;
    T* right = nullptr;
};

inline constexpr index_t panel_on_the_stack = EIGEN_STACK_ALLOCATION_LIMIT;  // bytes

// How Eigen blocks a product of two packed factors, with panels in memory of ours.
template <class T> class product_blocking : public Eigen::internal::level3_blocking<T, T> {
public:
    product_blocking(index_t rows, index_t columns, index_t depth, panel_memory<T> const& memory = {}) {
        this->m_mc = rows;
        this->m_nc = columns;
        this->m_kc = depth;
        Eigen::internal::computeProductBlockingSizes<T, T, 1>(this->m_kc, this->m_mc, this->m_nc);
        this->m_blockA = placed(memory.left, memory.sizes.left, this->m_mc * this->m_kc);
        this->m_blockB = placed(memory.right, memory.sizes.right, this->m_kc * this->m_nc);
    }

private:
    static T* placed(T* memory, index_t size, index_t needed) {
        bool const small = needed * static_cast<index_t>(sizeof(T)) <= panel_on_the_stack;
        return small || needed > size ? nullptr : memory;
    }
};

// C^T += B^T A^T, as Eigen's blocked product sees the same memory: by columns. Called directly: its expressions would
// compile a matrix-vector product, a coefficient-wise one and an inner product for every combination.
template <class T, int LeftOrder, int RightOrder>
void blocked_product(product<T> const& p, panel_memory<T> const& memory) {
    product_blocking<T> blocking(p.n, p.m, p.k, memory);
    Eigen::internal::general_matrix_matrix_product<index_t, T, LeftOrder, false, T, RightOrder, false, Eigen::ColMajor,
                                                   1>::run(p.n, p.m, p.k, p.b, p.ldb, p.a, p.lda, p.c, 1, p.ldc, T{1},
                                                           blocking);
}

template <class T> void serial_gemm(product<T> const& p, panel_memory<T> const& memory = {}) {
    if constexpr (std::is_floating_point_v<T>)
        if (has_few_rows(p)) return product_of_few_rows(p);
    if (p.bias != nullptr)
        for (index_t row = 0; row < p.m; ++row) std::copy_n(p.bias, p.n, p.c + row * p.ldc);
    else if (!p.accumulates)
        for (index_t row = 0; row < p.m; ++row) std::fill_n(p.c + row * p.ldc, p.n, T{});
    if (p.m == 0 || p.n == 0 || p.k == 0) return;
    constexpr int by_columns = Eigen::ColMajor;
    constexpr int by_rows = Eigen::RowMajor;
    if (p.a_transposed && p.b_transposed)
        blocked_product<T, by_rows, by_rows>(p, memory);
    else if (p.a_transposed)
        blocked_product<T, by_columns, by_rows>(p, memory);
    else if (p.b_transposed)
        blocked_product<T, by_rows, by_columns>(p, memory);
    else
        blocked_product<T, by_columns, by_columns>(p, memory);
}

// Slices of the larger of m and n. They follow from the shape alone, so the threads don't change the result.
inline index_t slice_width(index_t size) {
    index_t count = static_cast<index_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<index_t>(1, size / 64))));
    count = std::max(std::min<index_t>(count, 16), (size + 4095) / 4096);
    return std::max<index_t>(16, ((size + count - 1) / count + 15) / 16 * 16);
}

template <class T> product<T> slice_rows(product<T> p, index_t begin, index_t end) {
    p.m = end - begin;
    p.c += begin * p.ldc;
    p.a += p.a_transposed ? begin : begin * p.lda;
    return p;
}
template <class T> product<T> slice_columns(product<T> p, index_t begin, index_t end) {
    p.n = end - begin;
    p.c += begin;
    p.b += p.b_transposed ? begin * p.ldb : begin;
    if (p.bias != nullptr) p.bias += begin;
    return p;
}

// So many elements and more, until they fill whole lines of the cache.
template <class T> index_t whole_lines(index_t count) {
    constexpr auto line = static_cast<index_t>(memory_alignment / sizeof(T));
    return (count + line - 1) / line * line;
}

// The most that a slice needs. Fewer rows or less depth never need more: a step may have fewer than its
// rehearsal.
template <class T> panel_sizes panels_of_slices(product<T> const& p) {
    constexpr auto element = static_cast<index_t>(sizeof(T));
    constexpr index_t endless = index_t{1} << 30;
    index_t const depth = std::min(p.k, product_blocking<T>(1, 1, endless).kc());
    index_t const left = (p.m >= p.n ? std::max(p.n, slice_width(p.n)) : slice_width(p.n)) * depth;
    // Eigen keeps the right panel in half of what it takes for the second cache, 1.5 MB.
    index_t const right = std::min(p.m * depth, 786432 / element);
    auto const beyond_the_stack = [](index_t size) { return size * element > panel_on_the_stack ? size : 0; };
    return {beyond_the_stack(left), beyond_the_stack(right)};
}

template <class T> void gemm(context<cpu>& ctx, product<T> const& p) {
    bool const few = has_few_rows(p);
    bool const by_rows = !few && p.m >= p.n;
    index_t const size = by_rows ? p.m : p.n;
    index_t const width = few ? few_rows_slice(p) : slice_width(size);
    auto const panels = few ? panel_sizes() : panels_of_slices(p);
    arena_scope const scope(ctx.scratch);
    index_t const threads = ctx.threads_for((size + width - 1) / width);
    auto const lefts = ctx.scratch.template take<T>(extents<dyn, dyn>(threads, whole_lines<T>(panels.left)));
    auto const rights = ctx.scratch.template take<T>(extents<dyn, dyn>(threads, whole_lines<T>(panels.right)));
    ctx.parallel_ranges(size, width, [&](index_t begin, index_t end, int thread) {
        panel_memory<T> const memory{panels, lefts.data() + thread * lefts.extent(1),
                                     rights.data() + thread * rights.extent(1)};
        serial_gemm(by_rows ? slice_rows(p, begin, end) : slice_columns(p, begin, end), memory);
    });
}

}  // namespace calm::detail

#endif
