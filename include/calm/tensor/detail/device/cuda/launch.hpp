#pragma once
// Block kernels (kernel.hpp) on a GPU: in a phase each thread runs once, then comes __syncthreads.

#ifdef __CUDACC__

#include <cuda_pipeline.h>
#include <cxxabi.h>

#include <limits>
#include <typeinfo>

#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/device/cuda/context.hpp"

namespace calm {

// A block of N threads on the device, as a kernel sees it. It has the members of host_block (kernel.hpp).
template <int N> class device_block : public block_collectives<device_block<N>, N> {
    using block_collectives<device_block<N>, N>::lanes;

public:
    // A variable that every thread keeps across phases, in registers.
    template <class T> struct per_thread {
        T value;                                                  // this thread's
        CALM_HD T& operator[](int) { return value; }              // the calling thread's, whatever the index
        CALM_HD T const& operator[](int) const { return value; }  // read only
    };
    // Calls f(thread) on every thread, then waits for all of them.
    template <class F> CALM_HD void phase(F const& f) {
        each(f);
        barrier();
    }
    // Calls f(thread) without a barrier, for data that each thread has to itself.
    template <class F> CALM_HD void each([[maybe_unused]] F const& f) {
#ifdef __CUDA_ARCH__
        f(static_cast<int>(threadIdx.x));
#endif
    }

    // The value of the thread in the same warp whose lane is this one's xor `mask`; exchanged word by word.
    template <class T> CALM_HD per_thread<T> shuffle_xor(per_thread<T> const& x, [[maybe_unused]] int mask) {
        per_thread<T> y = x;
#ifdef __CUDA_ARCH__
        static_assert(std::is_trivially_copyable_v<T>);
        constexpr unsigned all = lanes == warp_size ? ~0U : (1U << lanes) - 1;
        unsigned words[(sizeof(T) + 3) / 4] = {};
        std::memcpy(words, &x, sizeof(T));
        for (unsigned& word : words) word = __shfl_xor_sync(all, word, mask);
        std::memcpy(&y, words, sizeof(T));
#endif
        return y;
    }
    // Lane l gets the value of the first thread of warp l. The second barrier lets the next call reuse the memory.
    template <class T> CALM_HD per_thread<T> of_warps(per_thread<T> const& x) {
        per_thread<T> y = x;
#ifdef __CUDA_ARCH__
        __shared__ alignas(T) unsigned char room[N / lanes * sizeof(T)];
        T* const first = reinterpret_cast<T*>(room);
        if (threadIdx.x % lanes == 0) first[threadIdx.x / lanes] = x.value;
        barrier();
        y.value = first[threadIdx.x % (N / lanes)];
        barrier();
#endif
        return y;
    }
    // This thread's value.
    template <class T> CALM_HD T any_of(per_thread<T> const& x) {
        return x.value;
    }

    // Starts copying `count` neighbouring values to shared memory, in the widest pieces that both addresses allow.
    template <class T>
    CALM_HD void copy_async([[maybe_unused]] T* to, [[maybe_unused]] T const* from, [[maybe_unused]] int count = 1) {
        static_assert(std::is_trivially_copyable_v<T>);
#ifdef __CUDA_ARCH__
        auto const bytes = static_cast<unsigned>(count) * static_cast<unsigned>(sizeof(T));
        auto const bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
        if (alignof(T) % 16 == 0 || bits % 16 == 0)
            copy_pieces<16>(to, from, bytes);
        else if (alignof(T) % 8 == 0 || bits % 8 == 0)
            copy_pieces<8>(to, from, bytes);
        else if (alignof(T) % 4 == 0 || bits % 4 == 0)
            copy_pieces<4>(to, from, bytes);
        else
            for (int i = 0; i < count; ++i) to[i] = from[i];
#endif
    }
    // Waits for the copies of all threads, so that all of them see the values.
    CALM_HD void wait_for_copies() {
#ifdef __CUDA_ARCH__
        __pipeline_commit();
        __pipeline_wait_prior(0);
#endif
        barrier();
    }

private:
    CALM_HD static void barrier() {
#ifdef __CUDA_ARCH__
        __syncthreads();
#endif
    }
#ifdef __CUDA_ARCH__
    template <unsigned Piece> __device__ static void copy_pieces(void* to, void const* from, unsigned bytes) {
        for (unsigned at = 0; at < bytes; at += Piece)
            __pipeline_memcpy_async(static_cast<char*>(to) + at, static_cast<char const*>(from) + at, Piece);
    }
#endif
};

namespace detail {

// How many blocks of a kernel a multiprocessor should hold at once, if the kernel declares it. It limits the registers.
template <class Kernel>
concept says_blocks_at_once = requires {
    Kernel::blocks_at_once;
};
template <class Kernel> inline constexpr int blocks_at_once = 0;  // all that fit
template <says_blocks_at_once Kernel> inline constexpr int blocks_at_once<Kernel> = Kernel::blocks_at_once;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_at_once<Kernel>) run_blocks(Kernel const kernel) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    device_block<Kernel::threads> threads;
    kernel(threads, *reinterpret_cast<typename Kernel::shared*>(shared_memory), static_cast<index_t>(blockIdx.x));
}

// The name of a type as in the source.
inline std::string readable(std::type_info const& type) {
    int status = 0;
    std::unique_ptr<char, void (*)(void*)> const name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                      std::free);
    return status == 0 ? name.get() : type.name();
}

// If the context checks every kernel: waits for the last launched one, and throws if it failed.
inline void check_launched(context<cuda> const& ctx, std::type_info const& kernel) {
    if (!ctx.checks_every_kernel) return;
    cudaError_t const status = cudaStreamSynchronize(ctx.queue());
    if (status != cudaSuccess) check_cuda(status, sentence("running ", readable(kernel)).c_str());
}

}  // namespace detail

// Runs the kernel on blocks 0 .. blocks - 1, after all earlier work. Throws errc::device.
template <class Kernel> void launch(context<cuda> const& ctx, index_t blocks, Kernel const& kernel) {
    constexpr std::size_t bytes = sizeof(typename Kernel::shared);
    constexpr std::size_t without_asking = 46 << 10;  // of 48 KiB: the block itself needs a little
    if (ctx.is_dry_run() || blocks <= 0) return;
    require(blocks <= std::numeric_limits<int>::max(), errc::usage,
            "calm::cuda: expected at most 2^31 - 1 blocks, found ", blocks, "; use smaller batches");
    if (!ctx.order().launches(typeid(Kernel).name(), blocks)) return;
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
