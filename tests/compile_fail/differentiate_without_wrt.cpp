// expect: calm::differentiate: no operand asks for a gradient: write wrt.x, dx. for x
#include "calm/tensor/expr/expr.hpp"

using vector = calm::tensor<float, calm::extents<3>>;

void back(calm::context<> const& ctx, vector const& x, [[maybe_unused]] vector& dx, vector const& dy) {
#ifdef CALM_SHOULD_FAIL
    calm::differentiate(ctx, exp(x), dy);
#else
    calm::differentiate(ctx, exp(calm::wrt(x, dx)), dy);
#endif
}
