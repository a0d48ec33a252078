// expect: calm::view: x\(i, j\) reads host memory: copy a tensor of a device to the host first
#include "calm/emulated.hpp"
#include "calm/tensor/core/tensor.hpp"

#ifdef CALM_SHOULD_FAIL
using backend = calm::emulated;
#else
using backend = calm::blocks;
#endif

float corner_of(calm::tensor<float, calm::extents<3, 2>, backend> const& x) {
    return x(0, 0);
}
