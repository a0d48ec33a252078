// expect: calm: element-wise operands must have the same rank
#include "calm/tensor/expr/expr.hpp"

void add(calm::tensor<float, calm::extents<2, 3>>& y, calm::tensor<float, calm::extents<2, 3>> const& a,
#ifdef CALM_SHOULD_FAIL
         calm::tensor<float, calm::extents<1, 2, 3>> const& b) {
#else
         calm::tensor<float, calm::extents<2, 3>> const& b) {
#endif
    y = a * b;
}
