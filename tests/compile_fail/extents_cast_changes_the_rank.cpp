// expect: calm::extents_cast: both shapes must have the same rank
#include "calm/tensor/core/extents.hpp"

#ifdef CALM_SHOULD_FAIL
using shape = calm::extents<2, 3, 1>;
#else
using shape = calm::extents<2, 3>;
#endif

shape recover(calm::extents<calm::dyn, calm::dyn> const& e) {
    return calm::extents_cast<shape>(e);
}
