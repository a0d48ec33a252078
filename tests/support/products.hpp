#pragma once
// Matrix products are compiled once for all tests, in products.cpp: they dominate the compile time of model tests.

#include <complex>

#include "calm/eigen.hpp"
#include "calm/tensor/ops/matmul.hpp"

namespace calm::detail {

extern template void gemm(context<cpu>&, product<float> const&);
extern template void gemm(context<cpu>&, product<float, bf16> const&);
extern template void gemm(context<cpu>&, product<float, int8_weight> const&);
extern template void gemm(context<cpu>&, product<double> const&);
extern template void gemm(context<cpu>&, product<std::complex<double>> const&);
extern template void eigen_product(product<float> const&);
extern template void eigen_product(product<double> const&);
extern template void serial_gemm(product<float> const&);
extern template void serial_gemm(product<double> const&);
extern template void serial_gemm(product<std::complex<double>> const&);

}  // namespace calm::detail
