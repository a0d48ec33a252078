// expect: calm: a result, a cotangent and a gradient must have the shape of their expression or operand
#include "calm/tensor/expr/expr.hpp"

#ifdef CALM_SHOULD_FAIL
void mean(calm::tensor<float, calm::extents<2, 3>>& y, calm::tensor<float, calm::extents<2, 3>> const& x) {
#else
void mean(calm::tensor<float, calm::extents<2, 1>>& y, calm::tensor<float, calm::extents<2, 3>> const& x) {
#endif
    y = mean_axis1(x);
}
