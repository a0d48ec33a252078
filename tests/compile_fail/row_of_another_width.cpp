// expect: calm: element-wise operands must have the same shape, or be a row .D. or a column .R, 1. next to .R, D.
#include "calm/tensor/expr/expr.hpp"

void add(calm::tensor<float, calm::extents<2, 3>>& y, calm::tensor<float, calm::extents<2, 3>> const& a,
#ifdef CALM_SHOULD_FAIL
         calm::tensor<float, calm::extents<2>> const& b) {
#else
         calm::tensor<float, calm::extents<3>> const& b) {
#endif
    y = a * b;
}
