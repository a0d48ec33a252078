#pragma once
// Memory of a device, for arenas and tensors.

#ifdef __CUDACC__

#include <algorithm>
#include <cstddef>

#include "calm/tensor/cuda/error.hpp"
#include "calm/tensor/memory.hpp"

namespace calm::detail {

template <> struct memory_of<cuda> {
    // Null if there is not enough memory; throws errc::device where there is no device.
    static void* allocate(std::size_t bytes) {
        void* p = nullptr;
        cudaError_t const status = cudaMalloc(&p, std::max(bytes, memory_alignment));
        if (status == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            return nullptr;
        }
        check_cuda(status, "taking memory of the device");
        return p;
    }
    // A failure here is one of an earlier kernel, which the next call reports.
    static void release(void* p) noexcept { (void)cudaFree(p); }
    static void clear(void* p, std::size_t bytes) {
        check_cuda(cudaMemset(p, 0, bytes), "clearing memory of the device");
    }
};

}  // namespace calm::detail

#endif
