#pragma once
// Block kernels (kernel.hpp) on a device: a phase is a thread's turn and __syncthreads.

#ifdef __CUDACC__

#include <cxxabi.h>

#include <limits>
#include <typeinfo>

#include "calm/tensor/cuda/context.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm {

// A block of N threads on the device, as a kernel sees it.
template <int N> struct device_block {
    // A variable that every thread keeps across phases: its registers.
    template <class T> struct per_thread {
        T value;                                      // this thread's
        CALM_HD T& operator[](int) { return value; }  // of the calling thread, whichever is asked for
    };
    // Calls f(thread) on every thread, then waits for all of them.
    template <class F> CALM_HD void phase([[maybe_unused]] F const& f) {
#ifdef __CUDA_ARCH__
        f(static_cast<int>(threadIdx.x));
        __syncthreads();
#endif
    }
};

namespace detail {

// How many blocks of a kernel a multiprocessor is to hold: as it says, by `blocks_at_once`. It bounds its registers.
template <class Kernel>
concept says_blocks_at_once = requires {
    Kernel::blocks_at_once;
};
template <class Kernel> inline constexpr int blocks_at_once = 0;  // as many as there is room for
template <says_blocks_at_once Kernel> inline constexpr int blocks_at_once<Kernel> = Kernel::blocks_at_once;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_at_once<Kernel>) run_blocks(Kernel const kernel) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    device_block<Kernel::threads> threads;
    kernel(threads, *reinterpret_cast<typename Kernel::shared*>(shared_memory), static_cast<index_t>(blockIdx.x));
}

// A type as it stands in the source.
inline std::string readable(std::type_info const& type) {
    int status = 0;
    std::unique_ptr<char, void (*)(void*)> const name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                      std::free);
    return status == 0 ? name.get() : type.name();
}

// Where the context checks every kernel: waits for the one that was launched last.
inline void check_launched(context<cuda> const& ctx, std::type_info const& kernel) {
    if (!ctx.checks_every_kernel) return;
    cudaError_t const status = cudaStreamSynchronize(ctx.queue());
    if (status != cudaSuccess) check_cuda(status, sentence("running ", readable(kernel)).c_str());
}

}  // namespace detail

// Runs the kernel on blocks 0 .. blocks - 1 after what the context was asked for before. Throws errc::device.
template <class Kernel> void launch(context<cuda> const& ctx, index_t blocks, Kernel const& kernel) {
    constexpr std::size_t bytes = sizeof(typename Kernel::shared);
    constexpr std::size_t without_asking = 48 << 10;
    if (ctx.rehearsing() || blocks <= 0) return;
    require(blocks <= std::numeric_limits<int>::max(), errc::usage,
            "calm::cuda: expected at most 2^31 - 1 blocks, found ", blocks, "; use smaller batches");
    detail::current_device const here;
    if constexpr (bytes > without_asking)
        detail::check_cuda(cudaFuncSetAttribute(detail::run_blocks<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(bytes)),
                           "asking for shared memory");
    detail::run_blocks<Kernel><<<static_cast<unsigned>(blocks), Kernel::threads, bytes, ctx.queue()>>>(kernel);
    detail::check_cuda(cudaGetLastError(), "starting a kernel, or running one before it");
    detail::check_launched(ctx, typeid(Kernel));
}

}  // namespace calm

#endif
