#pragma once
// The GPU of a process, and whether it can run this build.

#ifdef __CUDACC__

#include <array>
#include <atomic>
#include <string>
#include <string_view>

#include "calm/tensor/detail/device/cuda/error.hpp"

namespace calm {

namespace detail {

inline std::atomic<int> device_of_process{-1};  // -1: not chosen yet

// A process computes on one GPU, as a rank does. The first context chooses it, or the first memory, which takes number
// 0. All memory and all contexts are then on this GPU, in all threads. Throws errc::usage for another GPU.
inline void choose_device(int wanted) {
    int chosen = -1;
    if (device_of_process.compare_exchange_strong(chosen, wanted)) return;
    require(chosen == wanted, errc::usage, "calm::cuda: expected GPU ", chosen,
            ", which this process already uses, found ", wanted,
            "; one process uses one GPU: start another process, or make the context before any memory");
}

// The GPU of the process, or number 0 if none was chosen yet.
inline int number_of_device() {
    int const chosen = device_of_process;
    return chosen < 0 ? 0 : chosen;
}

// Makes a GPU the calling thread's current CUDA device during its lifetime, and then restores the previous one.
class current_device {
public:
    explicit current_device(int wanted) : wanted_(wanted) {
        check_cuda(cudaGetDevice(&before_), "asking for the current device");
        if (before_ != wanted_) check_cuda(cudaSetDevice(wanted_), "choosing the device");
    }
    // The GPU of the process.
    current_device() : current_device((choose_unless_chosen(), device_of_process.load())) {}
    ~current_device() {
        if (before_ != wanted_) (void)cudaSetDevice(before_);
    }
    current_device(current_device const&) = delete;
    current_device& operator=(current_device const&) = delete;

private:
    static void choose_unless_chosen() {
        int chosen = -1;
        device_of_process.compare_exchange_strong(chosen, 0);
    }
    int wanted_;
    int before_ = 0;
};

template <int> __global__ void nothing() {}

// The message for a GPU, with this name and compute capability, that this build has no code for.
inline std::string no_code_for(std::string_view name, int major, int minor) {
    constexpr std::array compiled{__CUDA_ARCH_LIST__};  // each such as 900
    std::string capabilities;
    for (int const c : compiled)
        capabilities += (capabilities.empty() ? "" : ", ") + sentence(c / 100, ".", c / 10 % 10);
    return sentence("no code for this GPU: ", name, " has compute capability ", major, ".", minor,
                    ", and this program was compiled for ", capabilities,
                    "; compile it with -DCMAKE_CUDA_ARCHITECTURES=", major, minor);
}

// Why the current device cannot run this build: asks the driver for a kernel's code. Empty if it can.
inline std::string no_code_reason(int device) {
    cudaFuncAttributes attributes{};
    cudaError_t const status = cudaFuncGetAttributes(&attributes, nothing<0>);
    if (status == cudaSuccess) return "";
    (void)cudaGetLastError();
    bool const no_code = status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
                         status == cudaErrorUnsupportedPtxVersion || status == cudaErrorJitCompilerNotFound;
    cudaDeviceProp is{};
    if (!no_code || cudaGetDeviceProperties(&is, device) != cudaSuccess)
        return "no GPU: " + std::string(cudaGetErrorString(status));
    return no_code_for(is.name, is.major, is.minor);
}

}  // namespace detail

// Why nothing can run on GPU number `device` here, one sentence; empty if it can.
inline std::string no_device_reason(int device = 0) {
    int count = 0;
    cudaError_t const status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        (void)cudaGetLastError();
        return "no GPU: " + std::string(cudaGetErrorString(status));
    }
    if (count <= 0) return "no GPU: this machine has none";
    if (device < 0 || device >= count) return sentence("no GPU ", device, ": this machine has GPUs 0 to ", count - 1);
    try {
        detail::current_device const here(device);
        return detail::no_code_reason(device);
    } catch (error const& e) {
        return sentence("no GPU: ", e.what());
    }
}
// For code with the backend as a parameter.
inline std::string no_device_reason(cuda, int device) {
    return no_device_reason(device);
}

}  // namespace calm

#endif
