#include "support/products.hpp"

namespace calm::detail {

template void gemm(context<cpu>&, product<float> const&);
template void gemm(context<cpu>&, product<float, bf16> const&);
template void gemm(context<cpu>&, product<float, int8_weight> const&);
template void gemm(context<cpu>&, product<double> const&);
template void gemm(context<cpu>&, product<std::complex<double>> const&);
template void eigen_product(product<float> const&);
template void eigen_product(product<double> const&);
template void serial_gemm(product<float> const&);
template void serial_gemm(product<double> const&);
template void serial_gemm(product<std::complex<double>> const&);

}  // namespace calm::detail
