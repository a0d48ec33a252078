// expect: calm: operands have different scalar types; convert one of them
#include "calm/tensor/expr/expr.hpp"

#ifdef CALM_SHOULD_FAIL
using other = double;
#else
using other = float;
#endif

void add(calm::tensor<float, calm::extents<3>>& y, calm::tensor<float, calm::extents<3>> const& a,
         calm::tensor<other, calm::extents<3>> const& b) {
    y = a + b;
}
