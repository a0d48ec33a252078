// expect: calm: the memory of this backend needs calm/cuda.hpp, compiled by nvcc
#include "calm/tensor/tensor.hpp"

#ifdef CALM_SHOULD_FAIL
using place = calm::cuda;
#else
using place = calm::emulated;
#endif

calm::tensor<float, calm::extents<3>, place> make() {
    return calm::tensor<float, calm::extents<3>, place>();
}
