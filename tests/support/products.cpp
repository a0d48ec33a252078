#include "support/products.hpp"

namespace calm::detail {

template void gemm(context<cpu> const&, product<float> const&);
template void gemm(context<cpu> const&, product<double> const&);
template void gemm(context<cpu> const&, product<std::complex<double>> const&);
template void serial_gemm(product<float> const&);
template void serial_gemm(product<double> const&);
template void serial_gemm(product<std::complex<double>> const&);

}  // namespace calm::detail
