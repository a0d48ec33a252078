#pragma once
// Failures of the CUDA runtime as exceptions.

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <string>

#include "calm/base/error.hpp"

namespace calm::detail {

// Throws errc::device or errc::memory on failure, with `tried` and CUDA's text.
inline void check_cuda(cudaError_t status, char const* tried) {
    if (status == cudaSuccess) [[likely]]
        return;
    (void)cudaGetLastError();  // so that the next call does not report it again
    throw error(status == cudaErrorMemoryAllocation ? errc::memory : errc::device,
                sentence("calm::cuda: ", tried, ": ", cudaGetErrorString(status)));
}

}  // namespace calm::detail

#endif
