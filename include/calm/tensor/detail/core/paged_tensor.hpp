#pragma once
// A host tensor that reserves addresses, and takes memory as its pages are written (demand paging).

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/core/memory.hpp"

namespace calm::detail {

// Row-major elements of a shape, zeros at first. T is trivially copyable; the backend reads the host's memory.
template <class T, class Extents, class Backend = cpu> class paged_tensor {
    static_assert(std::is_trivially_copyable_v<T>, "calm::paged_tensor: elements must be trivially copyable");

public:
    using backend = Backend;

    // Throws errc::memory if there are not enough addresses.
    explicit paged_tensor(Extents const& shape) : data_(map(shape)), extents_(shape) {}

    [[nodiscard]] T* data() { return data_.get(); }
    [[nodiscard]] T const* data() const { return data_.get(); }
    [[nodiscard]] Extents const& extents() const { return extents_; }
    [[nodiscard]] index_t extent(std::size_t r) const { return extents_[r]; }
    T& operator[](index_t i) { return data_[static_cast<std::size_t>(i)]; }
    T const& operator[](index_t i) const { return data_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] calm::view<T, Extents, Backend> view() { return {data(), extents_}; }
    [[nodiscard]] calm::view<T const, Extents, Backend> view() const { return {data(), extents_}; }

    // Gives back the pages that lie wholly among `count` elements from `first` on. The contents of these elements are
    // undefined afterwards.
    void discard(index_t first, index_t count) noexcept {
        auto const whole = whole_pages(data() + first, static_cast<std::size_t>(count) * sizeof(T));
        if (!whole.empty()) ::madvise(whole.data(), whole.size(), MADV_DONTNEED);
    }

private:
    struct unmap {
        std::size_t bytes = 0;
        void operator()(T* p) const noexcept { ::munmap(p, bytes); }
    };
    using pages = std::unique_ptr<T[], unmap>;

    static pages map(Extents const& shape) {
        auto const needed = bytes_of_shape<T>(shape);
        auto const bytes = std::max<std::size_t>(1, needed.value_or(0));
        void* const at =
            needed ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                   : MAP_FAILED;
        require(at != MAP_FAILED, errc::memory, "calm::tensor: expected memory for a shape of ", shape,
                "; use smaller shapes");
#ifdef MADV_NOHUGEPAGE
        ::madvise(at, bytes, MADV_NOHUGEPAGE);  // a large page would take memory for much that is never written
#endif
        return pages(static_cast<T*>(at), unmap{bytes});
    }

    pages data_;
    [[no_unique_address]] Extents extents_;
};

}  // namespace calm::detail
