// expect: calm::wrt: the gradient must be writable
#include "calm/tensor/expr/expr.hpp"

using vector = calm::tensor<float, calm::extents<3>>;

#ifdef CALM_SHOULD_FAIL
void back(calm::context<> const& ctx, vector const& x, vector const& dx, vector const& dy) {
#else
void back(calm::context<> const& ctx, vector const& x, vector& dx, vector const& dy) {
#endif
    calm::differentiate(ctx, exp(calm::wrt(x, dx)), dy);
}
