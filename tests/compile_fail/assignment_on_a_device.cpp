// expect: calm: y = expression runs on the calling thread: for memory of a device write evaluate\(ctx, y, expression\)
#include "calm/tensor/expr/expr.hpp"

#ifdef CALM_SHOULD_FAIL
using place = calm::cuda;
#else
using place = calm::blocks;
#endif

void negate(calm::view<float, calm::extents<3>, place> const& y,
            calm::view<float const, calm::extents<3>, place> const& x) {
    y = -x;
}
