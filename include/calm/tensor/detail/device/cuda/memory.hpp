#pragma once
// Device memory for arenas and tensors.

#ifdef __CUDACC__

#include <algorithm>
#include <cstddef>

#include "calm/tensor/detail/core/memory.hpp"
#include "calm/tensor/detail/device/cuda/queue.hpp"

namespace calm::detail {

// Memory of the process's GPU, whichever device is current.
template <> struct memory_of<cuda> {
    // Null if there is not enough memory; throws errc::device if there is no device.
    static void* allocate(std::size_t bytes) {
        current_device const here;
        device_queue::get().require_no_capture("a memory allocation");
        void* p = nullptr;
        cudaError_t const status = cudaMalloc(&p, std::max(bytes, memory_alignment));
        if (status == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            return nullptr;
        }
        check_cuda(status, "allocating device memory");
        return p;
    }
    // A failure here comes from an earlier kernel, and the next call reports it.
    static void release(void* p) noexcept {
        try {
            current_device const here;
            (void)cudaFree(p);
        } catch (error const&) {
        }
    }
    // Runs in stream order, and is allowed while a graph is captured.
    static void clear(void* p, std::size_t bytes) { device_queue::get().clear(p, bytes); }
    static void put(void* dst, void const* src, std::size_t bytes) { device_queue::get().upload(dst, src, bytes); }
};

}  // namespace calm::detail

#endif
