#pragma once
// The stream of a process, on which all that it asks of its GPU runs in order.

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

#include "calm/tensor/cuda/device.hpp"
#include "calm/tensor/recording.hpp"
#include "calm/tensor/staging.hpp"

namespace calm::detail {

// Memory of the host that a device reads by itself; null for no bytes. Throws errc::device.
struct free_pinned {
    void operator()(std::byte* p) const { (void)cudaFreeHost(p); }
};
using pinned_bytes = std::unique_ptr<std::byte, free_pinned>;
inline pinned_bytes pinned_memory(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    check_cuda(cudaMallocHost(&p, bytes), "taking pinned memory");
    return pinned_bytes(static_cast<std::byte*>(p));
}

// A mark in the order of a stream.
struct destroy_event {
    void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
using owned_event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, destroy_event>;
inline owned_event new_event() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "opening an event");
    return owned_event(event);
}

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
        if (recording_ == nullptr) return staging_->upload(*this, dst, src, bytes);
        auto* const there = room_ + recording_->ask_copy(dst, bytes);
        std::memcpy(there, src, bytes);
        if (recording_->is_new()) copy(dst, there, bytes);
    }
    // dst of the host = src on the device, when all that was asked for before is done, for which it waits.
    void download(void* dst, void const* src, std::size_t bytes) const {
        current_device const here;
        require_no_recording("a copy to the host");
        check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream_), "reading from the device");
        wait();
    }
    void clear(void* p, std::size_t bytes) const {
        current_device const here;
        if (recording_ != nullptr) {
            recording_->ask_fill(p, bytes);
            if (!recording_->is_new()) return;
        }
        check_cuda(cudaMemsetAsync(p, 0, bytes, stream_), "clearing memory of the device");
    }
    void wait() const {
        current_device const here;
        require_no_recording("a wait of the host");
        check_cuda(cudaStreamSynchronize(stream_),
                   "computing on the device (CALM_CUDA_CHECK=1 in the environment names the kernel)");
    }

    // From here on, until null is given, what is asked for is recorded, or compared with that and not asked for again;
    // the bytes of copies go by the room.
    void record(recording* of, std::byte* room) {
        recording_ = of;
        room_ = room;
    }
    // Of a kernel, with its blocks and what else is to be the same: whether it is launched. Not where it is recorded
    // already.
    bool launches(char const* kernel, index_t blocks, std::uint64_t more = 0) const {
        if (watch) watch(kernel, blocks, more);
        if (recording_ == nullptr) return true;
        recording_->ask(kernel, blocks, more);
        return recording_->is_new();
    }
    std::function<void(char const*, index_t, std::uint64_t)> watch;  // is told of each before it is launched
    // Throws errc::device where what is asked for is recorded.
    void require_no_recording(char const* found) const {
        require(recording_ == nullptr, errc::device,
                "calm::cuda: expected kernels, fills and copies from the host alone while a graph is made, found ",
                found, "; do it before or after the work that is done again");
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
        for (auto& event : left_) event = new_event().release();
        staging_.emplace(pinned_memory(staging<>::bytes).release());
    }

    std::mutex mutex_;
    cudaStream_t stream_ = nullptr;
    std::array<cudaEvent_t, 2> left_{};  // when the copies from a room were asked for
    std::optional<staging<>> staging_;
    recording* recording_ = nullptr;
    std::byte* room_ = nullptr;
};

}  // namespace calm::detail

#endif
