#include "products.hpp"

namespace calm::detail {

template void gemm(context<cpu>&, product<float> const&);
template void serial_gemm(product<float> const&);

}  // namespace calm::detail
