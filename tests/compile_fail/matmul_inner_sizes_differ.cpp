// expect: calm::matmul: columns of lhs must equal rows of rhs
#include "calm/tensor/ops/matmul.hpp"

void multiply(calm::context<>& ctx, calm::tensor<float, calm::extents<2, 5>>& c,
              calm::tensor<float, calm::extents<2, 3>> const& a,
#ifdef CALM_SHOULD_FAIL
              calm::tensor<float, calm::extents<4, 5>> const& b) {
#else
              calm::tensor<float, calm::extents<3, 5>> const& b) {
#endif
    calm::matmul(ctx, c, a, b);
}
