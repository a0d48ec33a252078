#pragma once
/// \file
/// The context of a GPU: arenas in its memory, and the states of cuBLASLt and cuDNN.
/// \shows{tests/consumer/project/device.cu}

#ifdef __CUDACC__

#include <cstdlib>
#include <string_view>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/detail/device/cuda/attention_plans.hpp"
#include "calm/tensor/detail/device/cuda/blas.hpp"
#include "calm/tensor/detail/device/cuda/memory.hpp"
#include "calm/tensor/detail/device/cuda/queue.hpp"

namespace calm {

namespace detail {

// Whether an environment variable is set to something other than 0; unless_set if it is not set.
inline bool environment_says(char const* name, bool unless_set) {
    char const* const value = std::getenv(name);
    return value == nullptr || *value == '\0' ? unless_set : std::string_view(value) != "0";
}

}  // namespace detail

/// Runs on one NVIDIA GPU. All work runs there in order; the host waits only in wait, fetch and copies to the host. All
/// contexts and all memory of a process are on one GPU and share one stream, so work of one context runs after earlier
/// work of another. Calls make that GPU current and then restore the previous one.
template <> class context<cuda> : public detail::device_context_base<cuda, context<cuda>> {
public:
    /// On the GPU that the process uses, or number 0. Throws as below.
    explicit context(std::uint64_t run_seed = 0) : context(run_seed, detail::number_of_device()) {}
    /// device: its number on this machine. Throws errc::device, with CUDA's text, if there is none or it cannot run
    /// this build; errc::usage if the process uses another GPU.
    context(std::uint64_t run_seed, int device) : device_context_base(run_seed), queue_(open(device)), device_(device) {
        cudaDeviceProp found{};
        detail::check_cuda(cudaGetDeviceProperties(&found, device), "asking for the size of its memory");
        memory = found.totalGlobalMem;
    }

    std::size_t memory = 0;  ///< total bytes of the device, free or not: see working_set.hpp

    /// Waits after every kernel and every product, and names the one that failed; otherwise a later call reports the
    /// failure. Initially true with CALM_CUDA_CHECK=1 in the environment. Not while a graph is captured.
    bool checks_every_kernel = detail::environment_says("CALM_CUDA_CHECK", false);
    /// Whether repeated work runs as graphs (tensor/detail/device/graph.hpp), unless every kernel is checked. Initially
    /// false with CALM_CUDA_GRAPHS=0 in the environment.
    bool uses_graphs = detail::environment_says("CALM_CUDA_GRAPHS", true);

    [[nodiscard]] int device() const { return device_; }  ///< its number on this machine
    /// Whether repeated work is captured.
    [[nodiscard]] bool records() const { return uses_graphs && !checks_every_kernel; }
    /// The CUDA stream of the process, on which everything runs. It does not wait for the legacy stream.
    [[nodiscard]] cudaStream_t queue() const { return queue_.stream(); }
    /// For launches and graphs; internal.
    [[nodiscard]] detail::device_queue& order() const { return queue_; }
    /// For products; internal.
    [[nodiscard]] detail::blas& blas() const { return blas_; }
    /// For attention in bf16; internal.
    [[nodiscard]] detail::attention_plans& attention() const { return attention_; }
    /// Number of products that cuBLASLt does not support and the slower block kernel computed.
    [[nodiscard]] index_t unsupported_products() const { return blas_.unsupported(); }
    /// How often a context in bf16 left attention to the block kernels because cuDNN does not support its shape.
    [[nodiscard]] index_t unsupported_attentions() const { return attention_.unsupported(); }

    /// Returns when all work is done. Throws errc::device if some of it failed.
    void wait() const { queue_.wait(); }
    /// Copies `bytes` bytes to dst on the device, for copy.hpp; src may change after it returns. It goes through pinned
    /// memory, so the host waits only for space there.
    void upload(void* dst, void const* src, std::size_t bytes) const {
        count_upload(bytes);
        queue_.upload(dst, src, bytes);
    }
    /// Copies to dst on the host, and waits as `wait` does.
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
