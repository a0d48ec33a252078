// expect: calm: the context, the expression and its tensors have different backends
#include "calm/tensor/expr/expr.hpp"

#ifdef CALM_SHOULD_FAIL
using other = calm::blocks;
#else
using other = calm::cpu;
#endif

void negate(calm::context<> const& ctx, calm::tensor<float, calm::extents<3>, other>& y,
            calm::tensor<float, calm::extents<3>> const& x) {
    calm::evaluate(ctx, y, -x);
}
