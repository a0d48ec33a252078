#pragma once
// Products of types without packets, such as complex numbers, by Eigen on one thread. The only header that includes
// Eigen. Empty under nvcc.

#ifndef __CUDACC__

#ifndef EIGEN_DONT_PARALLELIZE
#define EIGEN_DONT_PARALLELIZE
#endif
#include <Eigen/Core>

#include "calm/tensor/detail/kernels/cpu/matmul.hpp"

namespace calm::detail {

// Runs on one thread; Eigen allocates its own memory.
template <class T> void eigen_product(product<T> const& p) {
    using matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using stride = Eigen::OuterStride<>;
    using factor = Eigen::Map<matrix const, 0, stride>;
    empty_product(p);
    if (p.k == 0) return;
    Eigen::Map<matrix, 0, stride> c(p.c, p.m, p.n, stride(p.ldc));
    factor const a(p.a, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, stride(p.lda));
    factor const b(p.b, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, stride(p.ldb));
    if (p.a_transposed && p.b_transposed)
        c.noalias() += a.transpose() * b.transpose();
    else if (p.a_transposed)
        c.noalias() += a.transpose() * b;
    else if (p.b_transposed)
        c.noalias() += a * b.transpose();
    else
        c.noalias() += a * b;
}

template <class T>
requires(!has_packets<T>) void serial_gemm(product<T> const& p) {
    eigen_product(p);
}
template <class T>
requires(!has_packets<T>) void gemm(context<cpu>& ctx, product<T> const& p) {
    ctx.parallel(1, [&](index_t) { eigen_product(p); });
}

}  // namespace calm::detail

#endif
