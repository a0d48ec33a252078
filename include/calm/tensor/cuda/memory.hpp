#pragma once
// Memory of a device, for arenas and tensors.

#ifdef __CUDACC__

#include <algorithm>
#include <cstddef>

#include "calm/tensor/cuda/queue.hpp"
#include "calm/tensor/memory.hpp"

namespace calm::detail {

// Of the GPU of the process, whichever is current.
template <> struct memory_of<cuda> {
    // Null if there is not enough memory; throws errc::device where there is no device.
    static void* allocate(std::size_t bytes) {
        current_device const here;
        device_queue::get().require_no_recording("memory that is taken");
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
    static void release(void* p) noexcept {
        try {
            current_device const here;
            (void)cudaFree(p);
        } catch (error const&) {
        }
    }
    // In order with all else that the process asks of its GPU, and legal while a graph is captured.
    static void clear(void* p, std::size_t bytes) { device_queue::get().clear(p, bytes); }
    static void put(void* dst, void const* src, std::size_t bytes) { device_queue::get().upload(dst, src, bytes); }
};

}  // namespace calm::detail

#endif
