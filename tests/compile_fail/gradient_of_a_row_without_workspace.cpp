// expect: calm::differentiate: the gradient of a row .D. needs workspace
#include "calm/tensor/expr/expr.hpp"

using rows = calm::tensor<float, calm::extents<2, 3>>;
using row = calm::tensor<float, calm::extents<3>>;

#ifdef CALM_SHOULD_FAIL
void back(calm::context<> const& ctx, rows const& x, row const& w, row& dw, rows const& dy) {
#else
void back(calm::context<>& ctx, rows const& x, row const& w, row& dw, rows const& dy) {
#endif
    differentiate(ctx, x * wrt(w, dw), dy);
}
