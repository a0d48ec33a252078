// expect: calm: the memory of a device needs its header
#include "calm/tensor/core/tensor.hpp"

#ifdef CALM_SHOULD_FAIL
using place = calm::cuda;
#else
using place = calm::blocks;
#endif

calm::tensor<float, calm::extents<3>, place> make() {
    return calm::tensor<float, calm::extents<3>, place>();
}
