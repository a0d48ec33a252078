#pragma once
// Backends are tags in the type of what they store and run; contexts (context.hpp) are values in the call.

#include <type_traits>

namespace calm {

struct cpu {};       // packets, threads
struct blocks {};    // the block kernels of the GPU, on the host and in its memory
struct emulated {};  // the same in a memory that the host cannot touch, as late as a GPU: calm/emulated.hpp
struct cuda {};      // an NVIDIA GPU: the same kernels, compiled by nvcc: calm/cuda.hpp

// The host reads and writes what it stores.
template <class Backend>
concept host_memory = std::is_same_v<Backend, cpu> || std::is_same_v<Backend, blocks>;

// The host reaches what it stores by copies alone (copy.hpp).
template <class Backend>
concept device_memory = std::is_same_v<Backend, emulated> || std::is_same_v<Backend, cuda>;

// Runs portable block kernels (kernel.hpp).
template <class Backend>
concept block_executor = std::is_same_v<Backend, blocks> || device_memory<Backend>;

}  // namespace calm
