// expect: an expression cannot hold a temporary tensor
#include "calm/tensor/expr/expr.hpp"

using vector = calm::tensor<float, calm::extents<3>>;
vector make();

void add(vector& y, vector const& x) {
#ifdef CALM_SHOULD_FAIL
    y = x + make();
#else
    vector const named = make();
    y = x + named;
#endif
}
