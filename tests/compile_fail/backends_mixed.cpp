// expect: calm: operands live on different backends; copy
#include "calm/tensor/expr/expr.hpp"

#ifdef CALM_SHOULD_FAIL
using other = calm::blocks;
#else
using other = calm::cpu;
#endif

void add(calm::tensor<float, calm::extents<3>>& y, calm::tensor<float, calm::extents<3>> const& a,
         calm::tensor<float, calm::extents<3>, other> const& b) {
    y = a + b;
}
