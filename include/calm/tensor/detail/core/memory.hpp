#pragma once
// Memory of a backend, for arenas and tensors. For devices see detail/device/emulated/device.hpp and
// detail/device/cuda/memory.hpp.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "calm/tensor/core/backend.hpp"

namespace calm::detail {

inline constexpr std::size_t memory_alignment = 64;  // of every block, in bytes

// The pages that lie wholly within memory, by default pages of the system's size.
inline std::span<std::byte> whole_pages(void* p, std::size_t bytes,
                                        std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) noexcept {
    auto const before = (page - reinterpret_cast<std::uintptr_t>(p) % page) % page;  // bytes of another's page
    if (bytes < before + page) return {};
    return {static_cast<std::byte*>(p) + before, (bytes - before) / page * page};
}

// Requests huge pages, which Linux may give only on request: weights that are read once per patch load faster from few
// pages. Only for pages wholly inside the memory, so that no more of it is touched than is used.
inline void prefer_large_pages([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
    auto const pages = whole_pages(p, bytes, std::size_t{1} << 21);
    if (!pages.empty()) ::madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
#endif
}

template <class Backend> struct memory_of {
    static_assert(host_memory<Backend>,
                  "calm: the memory of a device needs its header: calm/cuda.hpp, compiled by nvcc, "
                  "or calm/emulated.hpp");

    // Null if there is not enough memory.
    static void* allocate(std::size_t bytes) {
        void* const p = ::operator new (bytes, std::align_val_t{memory_alignment}, std::nothrow);
        if (p != nullptr) prefer_large_pages(p, bytes);
        return p;
    }
    static void release(void* p) noexcept { ::operator delete (p, std::align_val_t{memory_alignment}); }
    // Not inlined: g++ 12 would warn about impossible sizes.
    [[gnu::noinline]] static void clear(void* p, std::size_t bytes) {
        if (bytes > 0) std::memset(p, 0, bytes);
    }
    // As clear, of private memory, without touching whole pages: the system gives zeros when they are first used.
    static void clear_untouched(void* p, std::size_t bytes) {
        auto const pages = whole_pages(p, bytes);
        if (pages.empty() || ::madvise(pages.data(), pages.size(), MADV_DONTNEED) != 0) return clear(p, bytes);
        auto const before = static_cast<std::size_t>(pages.data() - static_cast<std::byte*>(p));
        clear(p, before);
        clear(pages.data() + pages.size(), bytes - before - pages.size());
    }
    // Copies host memory: dst = src.
    static void put(void* dst, void const* src, std::size_t bytes) {
        if (bytes > 0) std::memcpy(dst, src, bytes);
    }
};

}  // namespace calm::detail
