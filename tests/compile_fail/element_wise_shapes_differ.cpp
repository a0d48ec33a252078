// expect: calm: element-wise operands must have the same shape
#include "calm/tensor/expr/expr.hpp"

void add(calm::tensor<float, calm::extents<calm::dyn, 3>>& y, calm::tensor<float, calm::extents<2, 3>> const& a,
#ifdef CALM_SHOULD_FAIL
         calm::tensor<float, calm::extents<calm::dyn, 4>> const& b) {
#else
         calm::tensor<float, calm::extents<calm::dyn, 3>> const& b) {
#endif
    y = a + b;
}
