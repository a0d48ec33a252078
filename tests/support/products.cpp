#include "support/products.hpp"

namespace calm::detail {

template void gemm(context<cpu> const&, product<float> const&);
template void gemm(context<cpu> const&, product<double> const&);
template void gemm(context<cpu> const&, product<std::complex<double>> const&);

}  // namespace calm::detail
