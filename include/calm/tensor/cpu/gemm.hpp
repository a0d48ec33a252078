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

// C^T += B^T A^T, as Eigen's blocked product sees the same memory: by columns. Called directly: its expressions would
// compile a matrix-vector product, a coefficient-wise one and an inner product for every combination.
template <class T, int LeftOrder, int RightOrder> void blocked_product(product<T> const& p) {
    namespace eigen = Eigen::internal;
    constexpr int dynamic = Eigen::Dynamic;
    eigen::gemm_blocking_space<Eigen::ColMajor, T, T, dynamic, dynamic, dynamic> blocking(p.n, p.m, p.k, 1, true);
    eigen::general_matrix_matrix_product<index_t, T, LeftOrder, false, T, RightOrder, false, Eigen::ColMajor, 1>::run(
        p.n, p.m, p.k, p.b, p.ldb, p.a, p.lda, p.c, 1, p.ldc, T{1}, blocking);
}

template <class T> void serial_gemm(product<T> const& p) {
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
        blocked_product<T, by_rows, by_rows>(p);
    else if (p.a_transposed)
        blocked_product<T, by_columns, by_rows>(p);
    else if (p.b_transposed)
        blocked_product<T, by_rows, by_columns>(p);
    else
        blocked_product<T, by_columns, by_columns>(p);
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

template <class T> void gemm(context<cpu> const& ctx, product<T> const& p) {
    bool const few = has_few_rows(p);
    bool const by_rows = !few && p.m >= p.n;
    index_t const size = by_rows ? p.m : p.n;
    index_t const width = few ? few_rows_slice(p) : slice_width(size);
    ctx.parallel_ranges(size, width, [&](index_t begin, index_t end) {
        serial_gemm(by_rows ? slice_rows(p, begin, end) : slice_columns(p, begin, end));
    });
}

}  // namespace calm::detail

#endif
