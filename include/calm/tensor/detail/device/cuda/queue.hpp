#pragma once
// The CUDA stream of a process, on which all its GPU work runs in order.

#ifdef __CUDACC__

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "calm/tensor/detail/core/graph_capture.hpp"
#include "calm/tensor/detail/device/cuda/device.hpp"
#include "calm/tensor/detail/device/staging.hpp"

namespace calm::detail {

// Pinned host memory, which a device reads directly; null for no bytes. Throws errc::device.
struct free_pinned {
    void operator()(std::byte* p) const { (void)cudaFreeHost(p); }
};
using pinned_bytes = std::unique_ptr<std::byte, free_pinned>;
inline pinned_bytes pinned_memory(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    check_cuda(cudaMallocHost(&p, bytes), "allocating pinned memory");
    return pinned_bytes(static_cast<std::byte*>(p));
}

// A CUDA event: a mark in the order of a stream.
struct destroy_event {
    void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
using owned_event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, destroy_event>;
inline owned_event new_event() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "opening an event");
    return owned_event(event);
}

// One per process, as is its memory: contexts share both, so work runs in the order in which any of them started it. It
// waits for no other stream, not even the legacy one. Calls from several threads take turns.
class device_queue {
public:
    // Never destroyed, as objects with static storage use it. Throws errc::device if there is no device.
    static device_queue& get() {
        static auto& only = *new device_queue;
        return only;
    }

    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    // Copies src to dst on the device; src may change after it returns.
    void upload(void* dst, void const* src, std::size_t bytes) {
        std::scoped_lock const lock(mutex_);
        current_device const here;
        if (capture_ == nullptr) return staging_->upload(*this, dst, src, bytes);
        auto* const there = room_ + capture_->check_copy(dst, bytes);
        std::memcpy(there, src, bytes);
        if (capture_->is_new()) copy(dst, there, bytes);
    }
    // Copies src on the device to dst on the host after all earlier work, and waits for that.
    void download(void* dst, void const* src, std::size_t bytes) const {
        current_device const here;
        require_no_capture("a copy to the host");
        check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream_), "reading from the device");
        wait();
    }
    void clear(void* p, std::size_t bytes) const {
        current_device const here;
        if (capture_ != nullptr) {
            capture_->check_fill(p, bytes);
            if (!capture_->is_new()) return;
        }
        check_cuda(cudaMemsetAsync(p, 0, bytes, stream_), "clearing device memory");
    }
    void wait() const {
        current_device const here;
        require_no_capture("a wait by the host");
        check_cuda(cudaStreamSynchronize(stream_),
                   "computing on the device (CALM_CUDA_CHECK=1 in the environment names the kernel)");
    }

    // Until it is called with null, work is recorded, or compared with a finished recording and not started again.
    // Copies take their bytes from `room`.
    void record(graph_capture* of, std::byte* room) {
        capture_ = of;
        room_ = room;
    }
    // Whether to launch a kernel: not if a finished recording has it. Its name, `blocks` and `more` must be as
    // recorded.
    bool launches(char const* kernel, index_t blocks, std::uint64_t more = 0) const {
        if (watch) watch(kernel, blocks, more);
        if (capture_ == nullptr) return true;
        capture_->check(kernel, blocks, more);
        return capture_->is_new();
    }
    std::function<void(char const*, index_t, std::uint64_t)> watch;  // called before each launch
    // Throws errc::device while work is recorded.
    void require_no_capture(char const* found) const {
        require(capture_ == nullptr, errc::device,
                "calm::cuda: expected only kernels, fills and copies from the host during graph capture, found ", found,
                "; do it before or after the captured work");
    }

    // Used by staging.
    void copy(void* dst, void const* src, std::size_t bytes) const {
        check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, stream_), "copying to the device");
    }
    void mark(std::size_t room) const { check_cuda(cudaEventRecord(left_[room], stream_), "marking a copy"); }
    void wait(std::size_t room) const { check_cuda(cudaEventSynchronize(left_[room]), "copying to the device"); }

private:
    device_queue() {
        current_device const here;
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "opening a stream");
        for (auto& event : left_) event = new_event().release();
        staging_.emplace(pinned_memory(staging<>::bytes).release());
    }

    std::mutex mutex_;
    cudaStream_t stream_ = nullptr;
    std::array<cudaEvent_t, 2> left_{};  // after the copies from each of the two staging buffers
    std::optional<staging<>> staging_;
    graph_capture* capture_ = nullptr;
    std::byte* room_ = nullptr;
};

}  // namespace calm::detail

#endif
