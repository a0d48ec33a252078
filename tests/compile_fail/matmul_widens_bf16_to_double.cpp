// expect: calm::matmul: expected factors of one type, or float and a second one of bf16
#include "calm/tensor/ops/matmul.hpp"

#ifdef CALM_SHOULD_FAIL
using number = double;
#else
using number = float;
#endif

void multiply(calm::context<>& ctx, calm::tensor<number, calm::extents<2, 4>>& y,
              calm::tensor<number, calm::extents<2, 3>> const& x,
              calm::tensor<calm::bf16, calm::extents<4, 3>> const& w) {
    matmul(ctx, y, x, calm::transposed(w));
}
