#pragma once
// What the kernels of LayerNorm and RMSNorm read, on every backend.

#include "calm/tensor/core/extents.hpp"

namespace calm::detail {

// Forward of LayerNorm.
template <class T> struct layer_norm_input {
    T const* x;  // (rows, n)
    T const* w;  // (n), the gain
    T const* b;  // (n)
    index_t rows, n;
    double eps;
};

// Backward of both.
template <class T> struct norm_forward {
    T const* x;     // (rows, n)
    T const* w;     // (n), the gain
    T const* mean;  // (rows); null for RMSNorm
    T const* r;     // (rows): 1 / standard deviation, or 1 / root of the mean square
    index_t rows, n;
};

}  // namespace calm::detail
