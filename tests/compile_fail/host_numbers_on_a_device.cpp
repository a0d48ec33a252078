// expect: no match for .operator\[\]|does not provide a subscript operator|no viable overloaded operator\[\]
#include "calm/emulated.hpp"
#include "calm/tensor/core/tensor.hpp"

#ifdef CALM_SHOULD_FAIL
using backend = calm::emulated;
#else
using backend = calm::blocks;
#endif

float first_of(calm::tensor<float, calm::extents<3>, backend> const& x) {
    return x[0];
}
