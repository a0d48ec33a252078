#pragma once
// The stream of a process, on which all that it asks of its GPU runs in order.

#ifdef __CUDACC__

#include <array>
#include <mutex>
#include <optional>

#include "calm/tensor/cuda/device.hpp"
#include "calm/tensor/staging.hpp"

namespace calm::detail {

// One for the process, as its memory is: contexts share both, and what one asks for comes after what any asked for
// before. It waits for no other stream, not even the legacy one. Calls from several threads take turns.
class device_queue {
public:
    // It outlives all that has static storage and asks for it. Throws errc::device where there is no device.
    static device_queue& get() {
        static auto& only = *new device_queue;
        return only;
    }

    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    // dst on the device = the bytes of src, which are taken when it returns.
    void upload(void* dst, void const* src, std::size_t bytes) {
        std::scoped_lock const lock(mutex_);
        current_device const here;
        staging_->upload(*this, dst, src, bytes);
    }
    // dst of the host = src on the device, when all that was asked for before is done, for which it waits.
    void download(void* dst, void const* src, std::size_t bytes) const {
        current_device const here;
        check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream_), "reading from the device");
        wait();
    }
    void clear(void* p, std::size_t bytes) const {
        current_device const here;
        check_cuda(cudaMemsetAsync(p, 0, bytes, stream_), "clearing memory of the device");
    }
    void wait() const {
        current_device const here;
        check_cuda(cudaStreamSynchronize(stream_),
                   "computing on the device (CALM_CUDA_CHECK=1 in the environment names the kernel)");
    }

    // For staging.
    void copy(void* dst, void const* src, std::size_t bytes) const {
        check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, stream_), "copying to the device");
    }
    void mark(std::size_t room) const { check_cuda(cudaEventRecord(left_[room], stream_), "marking a copy"); }
    void wait(std::size_t room) const { check_cuda(cudaEventSynchronize(left_[room]), "copying to the device"); }

private:
    device_queue() {
        current_device const here;
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "opening a stream");
        for (auto& event : left_)
            check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "opening an event");
        void* rooms = nullptr;
        check_cuda(cudaMallocHost(&rooms, staging<>::bytes), "taking pinned memory");
        staging_.emplace(rooms);
    }

    std::mutex mutex_;
    cudaStream_t stream_ = nullptr;
    std::array<cudaEvent_t, 2> left_{};  // when the copies from a room were asked for
    std::optional<staging<>> staging_;
};

}  // namespace calm::detail

#endif
