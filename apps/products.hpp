#pragma once
// Matrix products do not depend on a configuration, so they are compiled once, in products.cpp.

#include "calm/tensor/ops/matmul.hpp"

namespace calm::detail {

extern template void gemm(context<cpu>&, product<float> const&);
extern template void gemm(context<cpu>&, product<float, bf16> const&);
extern template void gemm(context<cpu>&, product<float, int8_weight> const&);
extern template void serial_gemm(product<float> const&);

}  // namespace calm::detail

namespace calm::apps {

// calm::multiply_in_bf16, also compiled once.
void multiply_in_bf16(context<cpu>& ctx);
// calm::has_bf16_products, as products.cpp was compiled.
bool has_bf16_products();

}  // namespace calm::apps
