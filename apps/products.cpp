#include "products.hpp"

namespace calm::detail {

template void gemm(context<cpu>&, product<float> const&);
template void gemm(context<cpu>&, product<float, bf16> const&);
template void serial_gemm(product<float> const&);

}  // namespace calm::detail
