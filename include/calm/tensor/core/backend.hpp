#pragma once
/// \file
/// Backends are tags in the types of tensors and views; contexts (context.hpp) are values in the call.
/// \shows{examples/11_block_kernel.cpp,main}

#include <type_traits>

namespace calm {

struct cpu {};       ///< SIMD packets and threads
struct blocks {};    ///< the GPU's block kernels on the host, where a debugger and the sanitizers see each access
struct emulated {};  ///< block kernels in memory that the host cannot touch, run when the host waits: calm/emulated.hpp
struct cuda {};      ///< an NVIDIA GPU, block kernels compiled by nvcc: calm/cuda.hpp

/// Backends whose memory the host reads and writes.
template <class Backend>
concept host_memory = std::is_same_v<Backend, cpu> || std::is_same_v<Backend, blocks>;

/// Devices: the host reaches their memory only through copies (copy.hpp).
template <class Backend>
concept device_memory = std::is_same_v<Backend, emulated> || std::is_same_v<Backend, cuda>;

/// Backends that run portable block kernels (kernel.hpp).
template <class Backend>
concept block_backend = std::is_same_v<Backend, blocks> || device_memory<Backend>;

}  // namespace calm
