#pragma once
// The context of a device: a stream, arenas in its memory, a handle of cuBLASLt.

#ifdef __CUDACC__

#include "calm/tensor/context.hpp"
#include "calm/tensor/cuda/blas.hpp"
#include "calm/tensor/cuda/memory.hpp"

namespace calm {

// Runs on one NVIDIA GPU. Everything that is asked for runs there in order; the host waits only in wait, fetch and
// copies between host and device. It owns its stream, arenas and handle.
template <> class context<cuda> : public detail::context_base<cuda> {
public:
    // device: its number on this machine. Throws errc::device where there is none, with CUDA's text.
    explicit context(std::uint64_t run_seed = 0, int device = 0) :
        detail::context_base<cuda>(run_seed), queue_(open(device)) {}

    // The CUDA stream on which everything runs, in order.
    [[nodiscard]] cudaStream_t queue() const { return queue_.get(); }
    [[nodiscard]] detail::blas const& blas() const { return blas_; }  // for products; the library's own

    // Returns when all that was asked for is done. Throws errc::device where something of it failed.
    void wait() const { detail::check_cuda(cudaStreamSynchronize(queue()), "computing on the device"); }
    // `bytes` bytes to dst on the device, taken when it returns; for copy.hpp.
    void upload(void* dst, void const* src, std::size_t bytes) const {
        detail::check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, queue()), "copying to the device");
    }
    // The same to dst on the host, which waits as `wait` does.
    void download(void* dst, void const* src, std::size_t bytes) const {
        detail::check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, queue()),
                           "reading from the device");
        wait();
    }

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
};

}  // namespace calm

#endif
