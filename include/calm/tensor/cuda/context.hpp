#pragma once
// The context of a device: a stream, arenas in its memory, a handle of cuBLASLt.

#ifdef __CUDACC__

#include "calm/tensor/context.hpp"
#include "calm/tensor/cuda/blas.hpp"
#include "calm/tensor/cuda/memory.hpp"

namespace calm {

// Runs on one NVIDIA GPU. Everything that is asked for runs there in order; the host waits only in wait, fetch and
// copies between host and device. It owns its stream, arenas and handle.
template <> class context<cuda> {
public:
    using backend = cuda;

    // device: its number on this machine. Throws errc::device where there is none, with CUDA's text.
    explicit context(std::uint64_t run_seed = 0, int device = 0) : seed(run_seed), queue_(open(device)) {}

    std::uint64_t seed;                      // of every random key
    std::uint32_t step = 0;                  // of the run: part of every random key
    index_t micro_batch = 0;                 // of the step, whose micro-batches are equal parts of it
    arena<cuda> saved{"saved activations"};  // what backward needs of forward, on the device
    arena<cuda> scratch{"scratch"};          // what a verb or layer needs while it runs, on the device

    [[nodiscard]] key random(stream s) const { return {seed, s, step}; }  // of this step
    // The CUDA stream on which everything runs, in order.
    [[nodiscard]] cudaStream_t queue() const { return queue_.get(); }
    [[nodiscard]] detail::blas const& blas() const { return blas_; }  // for products; the library's own

    // As on the host: shapes are checked and memory is taken, nothing is computed.
    [[nodiscard]] bool rehearsing() const { return rehearsing_; }
    void rehearse(bool on) { rehearsing_ = on; }  // begins or ends a rehearsal

    // Returns when all that was asked for is done. Throws errc::device where something of it failed.
    void wait() const { detail::check_cuda(cudaStreamSynchronize(queue()), "computing on the device"); }

private:
    struct close {
        void operator()(cudaStream_t queue) const { (void)cudaStreamDestroy(queue); }
    };
    using queue_owner = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, close>;

    static queue_owner open(int device) {
        std::string const reason = no_device_reason();
        require(reason.empty(), errc::device, "calm::cuda: ", reason, "; use context<cpu>");
        detail::check_cuda(cudaSetDevice(device), "choosing the device");
        cudaStream_t queue = nullptr;
        detail::check_cuda(cudaStreamCreate(&queue), "opening a stream");
        return queue_owner(queue);
    }

    queue_owner queue_;
    detail::blas blas_;
    bool rehearsing_ = false;
};

}  // namespace calm

#endif
