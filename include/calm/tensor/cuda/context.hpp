#pragma once
// The context of a device: arenas in its memory, a handle of cuBLASLt.

#ifdef __CUDACC__

#include <cstdlib>
#include <string_view>

#include "calm/tensor/context.hpp"
#include "calm/tensor/cuda/attention_plans.hpp"
#include "calm/tensor/cuda/blas.hpp"
#include "calm/tensor/cuda/memory.hpp"
#include "calm/tensor/cuda/queue.hpp"

namespace calm {

namespace detail {

// Of a variable that is 0 or not.
inline bool environment_says(char const* name, bool unless_set) {
    char const* const value = std::getenv(name);
    return value == nullptr || *value == '\0' ? unless_set : std::string_view(value) != "0";
}

}  // namespace detail

// Runs on one NVIDIA GPU. Everything that is asked for runs there in order; the host waits only in wait, fetch and
// copies to it. All contexts of a process are of one GPU and one stream, as all memory is: what one asks for comes
// after what another asked for before. Whatever other GPU is current, the library finds its own, and leaves the other
// current.
template <> class context<cuda> : public detail::device_context_base<cuda, context<cuda>> {
public:
    // Of the GPU that the process computes on, or number 0. Throws as below.
    explicit context(std::uint64_t run_seed = 0) : context(run_seed, detail::number_of_device()) {}
    // device: its number on this machine. Throws errc::device where there is none, or none that runs what was compiled,
    // with CUDA's text; errc::usage where the process computes on another one.
    context(std::uint64_t run_seed, int device) : device_context_base(run_seed), queue_(open(device)), device_(device) {
        cudaDeviceProp found{};
        detail::check_cuda(cudaGetDeviceProperties(&found, device), "asking for the size of its memory");
        memory = found.totalGlobalMem;
    }

    std::size_t memory = 0;  // bytes of the device, also of what others use: see working_set.hpp

    // Waits after every kernel and every product, and names the one that failed. Otherwise a failure is reported by a
    // later call. True from the start where the environment says CALM_CUDA_CHECK=1. Not while a graph is captured.
    bool checks_every_kernel = detail::environment_says("CALM_CUDA_CHECK", false);
    // For work that is done again (tensor/graph.hpp), but where every kernel is checked. False from the start where the
    // environment says CALM_CUDA_GRAPHS=0.
    bool uses_graphs = detail::environment_says("CALM_CUDA_GRAPHS", true);

    [[nodiscard]] int device() const { return device_; }                                // its number
    [[nodiscard]] bool records() const { return uses_graphs && !checks_every_kernel; }  // work that is done again, now
    // The CUDA stream of the process, on which everything runs. It does not wait for the legacy stream.
    [[nodiscard]] cudaStream_t queue() const { return queue_.stream(); }
    // For launches and graphs; the library's own.
    [[nodiscard]] detail::device_queue& order() const { return queue_; }
    // For products; the library's own.
    [[nodiscard]] detail::blas& blas() const { return blas_; }
    // For attention in bf16; the library's own.
    [[nodiscard]] detail::attention_plans& attention() const { return attention_; }
    // Products that cuBLASLt does not support, and the slower block kernel computed.
    [[nodiscard]] index_t unsupported_products() const { return blas_.unsupported(); }
    // Times that a context in bf16 left attention to the block kernels because cuDNN does not support its shape.
    [[nodiscard]] index_t unsupported_attentions() const { return attention_.unsupported(); }

    // Returns when all that was asked for is done. Throws errc::device where something of it failed.
    void wait() const { queue_.wait(); }
    // `bytes` bytes to dst on the device, taken when it returns; for copy.hpp. Through pinned memory, so the host waits
    // for nothing but room there.
    void upload(void* dst, void const* src, std::size_t bytes) const {
        count_upload(bytes);
        queue_.upload(dst, src, bytes);
    }
    // The same to dst on the host, which waits as `wait` does.
    void download(void* dst, void const* src, std::size_t bytes) const { queue_.download(dst, src, bytes); }

private:
    static detail::device_queue& open(int device) {
        std::string const reason = no_device_reason(device);
        require(reason.empty(), errc::device, "calm::cuda: ", reason, "; use context<cpu>");
        detail::choose_device(device);
        return detail::device_queue::get();
    }

    detail::device_queue& queue_;
    int device_;
    detail::blas mutable blas_;
    detail::attention_plans mutable attention_;
};

}  // namespace calm

#endif
