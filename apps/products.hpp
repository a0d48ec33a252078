#pragma once
// Matrix products are compiled once for all configurations, in products.cpp: they know nothing of one.

#include "calm/tensor/matmul.hpp"

namespace calm::detail {

extern template void gemm(context<cpu>&, product<float> const&);
extern template void gemm(context<cpu>&, product<float, bf16> const&);
extern template void serial_gemm(product<float> const&);

}  // namespace calm::detail

namespace calm::apps {

// calm::multiply_in_bf16, compiled once as well.
void multiply_in_bf16(context<cpu>& ctx);
// calm::has_bf16_products, as those were compiled.
bool has_bf16_products();

}  // namespace calm::apps
