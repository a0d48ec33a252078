// expect: calm::matmul: on cuda expected float or double
#include <cuda_fp16.h>

#include "calm/cuda.hpp"

#ifdef CALM_SHOULD_FAIL
using number = __half;
#else
using number = double;
#endif

calm::detail::lt_description of(calm::detail::product<number> const& p) {
    return calm::detail::describe(p);
}
