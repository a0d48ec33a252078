// expect: an expression is used where it is written
#include "calm/tensor/expr/expr.hpp"

void scale(calm::tensor<float, calm::extents<3>>& y, calm::tensor<float, calm::extents<3>> const& x) {
#ifdef CALM_SHOULD_FAIL
    auto const doubled = 2 * x;
    y = doubled + x;
#else
    y = 2 * x + x;
#endif
}
