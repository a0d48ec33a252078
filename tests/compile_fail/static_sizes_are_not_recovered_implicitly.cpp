// expect: (could not convert|no viable conversion|conversion from .* requested)
#include "calm/tensor/core/view.hpp"

using any = calm::view<float, calm::extents<calm::dyn, calm::dyn>>;
using three_columns = calm::matrix_view<float, 3>;

three_columns recover(any const& x) {
#ifdef CALM_SHOULD_FAIL
    return x;
#else
    return reshape(x, calm::extents_cast<calm::extents<calm::dyn, 3>>(x.extents()));
#endif
}
