#pragma once
// Failures of the CUDA runtime as errors, and whether there is a device at all.

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <string>

#include "calm/base/error.hpp"

namespace calm {

namespace detail {

// Throws errc::device, or errc::memory, with what was tried and CUDA's text.
inline void check_cuda(cudaError_t status, char const* tried) {
    if (status == cudaSuccess) [[likely]]
        return;
    (void)cudaGetLastError();  // so that the next call does not report it again
    throw error(status == cudaErrorMemoryAllocation ? errc::memory : errc::device,
                sentence("calm::cuda: ", tried, ": ", cudaGetErrorString(status)));
}

}  // namespace detail

// Why nothing can run on a GPU here; empty where it can.
inline std::string no_device_reason() {
    int count = 0;
    cudaError_t const status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        (void)cudaGetLastError();
        return "no GPU: " + std::string(cudaGetErrorString(status));
    }
    return count > 0 ? "" : "no GPU: this machine has none";
}

}  // namespace calm

#endif
