#include "products.hpp"

#include "calm/tensor/ops/bf16_products.hpp"

namespace calm::detail {

template void gemm(context<cpu>&, product<float> const&);
template void gemm(context<cpu>&, product<float, bf16> const&);
template void gemm(context<cpu>&, product<float, int8_weight> const&);
template void serial_gemm(product<float> const&);

}  // namespace calm::detail

namespace calm::apps {

void multiply_in_bf16(context<cpu>& ctx) {
    calm::multiply_in_bf16(ctx);
}
bool has_bf16_products() {
    return calm::has_bf16_products;
}

}  // namespace calm::apps
