#pragma once
// Where the memory of a backend comes from. Arenas and tensors ask for it; a device's is in emulated/device.hpp and
// cuda/memory.hpp.

#include <cstring>
#include <new>

#include "calm/tensor/backend.hpp"

namespace calm::detail {

inline constexpr std::size_t memory_alignment = 64;  // of every block, in bytes

template <class Backend> struct memory_of {
    static_assert(host_memory<Backend>,
                  "calm: the memory of a device needs its header: calm/cuda.hpp, compiled by nvcc, "
                  "or calm/emulated.hpp");

    // Null if there is not enough memory.
    static void* allocate(std::size_t bytes) {
        return ::operator new (bytes, std::align_val_t{memory_alignment}, std::nothrow);
    }
    static void release(void* p) noexcept { ::operator delete (p, std::align_val_t{memory_alignment}); }
    // Not inlined: g++ 12 otherwise warns of sizes that cannot be.
    [[gnu::noinline]] static void clear(void* p, std::size_t bytes) {
        if (bytes > 0) std::memset(p, 0, bytes);
    }
    // dst = src, of the host.
    static void put(void* dst, void const* src, std::size_t bytes) {
        if (bytes > 0) std::memcpy(dst, src, bytes);
    }
};

}  // namespace calm::detail
