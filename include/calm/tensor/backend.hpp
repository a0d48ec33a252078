#pragma once
// Backends are tags in the type of what they store and run; contexts (context.hpp) are values in the call.

#include <type_traits>

namespace calm {

struct cpu {};       // packets, Eigen, OpenMP
struct emulated {};  // the portable block kernels of the GPU, run on the host
struct cuda {};      // an NVIDIA GPU: the same kernels, compiled by nvcc (calm/cuda.hpp)

// Runs portable block kernels (kernel.hpp).
template <class Backend>
concept block_executor = std::is_same_v<Backend, emulated> || std::is_same_v<Backend, cuda>;

// The host reads and writes what it stores.
template <class Backend>
concept host_memory = std::is_same_v<Backend, cpu> || std::is_same_v<Backend, emulated>;

}  // namespace calm
