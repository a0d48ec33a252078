#pragma once
/// \file
/// A tensor owns its memory and only moves. Pass views. To copy one, make another of its shape and call copy(ctx,
/// to.view(), from.view()).
/// \shows{examples/02_tensor.cpp}

#include <memory>

#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/core/memory.hpp"

namespace calm {

/// Row-major elements of a shape in owned memory, on the host or on a device. T is trivially copyable.
template <class T, class Extents, class Backend = cpu> class tensor {
    static_assert(std::is_trivially_copyable_v<T>, "calm::tensor: elements must be trivially copyable");

    using memory = detail::memory_of<Backend>;

public:
    using element_type = T;
    using value_type = T;
    using extents_type = Extents;
    using backend = Backend;

    /// Zeros of the shape. Throws errc::memory if there is not enough memory.
    explicit tensor(Extents const& shape = Extents()) :
        data_(static_cast<T*>(memory::allocate(bytes(shape)))), extents_(shape) {
        require_memory(data_ != nullptr, shape);
        memory::clear(data_.get(), bytes(shape));
    }
    /// A moved-from tensor has no memory. It may only be destroyed, or another tensor may be assigned to it.
    tensor(tensor&&) noexcept = default;
    tensor& operator=(tensor&&) noexcept = default;

    /// y = expression: see expr.hpp.
    template <class Expression>
    requires detail::is_expression<std::remove_cvref_t<Expression>> tensor& operator=(Expression&& expression) {
        view() = static_cast<Expression&&>(expression);
        return *this;
    }

    [[nodiscard]] T* data() { return data_.get(); }                            ///< the first element
    [[nodiscard]] T const* data() const { return data_.get(); }                ///< the first element
    [[nodiscard]] Extents const& extents() const { return extents_; }          ///< the shape
    [[nodiscard]] index_t extent(std::size_t r) const { return extents_[r]; }  ///< size r of the shape
    [[nodiscard]] index_t size() const { return extents_.size(); }             ///< number of elements

    /// The element with one index per dimension, in host memory. Throws errc::usage for an index outside of the shape.
    template <std::convertible_to<index_t>... Index> T& operator()(Index... indices) { return view()(indices...); }
    /// The element, read only.
    template <std::convertible_to<index_t>... Index> T const& operator()(Index... indices) const {
        return view()(indices...);
    }
    /// Element i in row-major order, unchecked; for host memory.
    T& operator[](index_t i) requires host_memory<Backend> { return data_[static_cast<std::size_t>(i)]; }
    /// Element i, read only.
    T const& operator[](index_t i) const requires host_memory<Backend> { return data_[static_cast<std::size_t>(i)]; }
    T* begin() requires host_memory<Backend> { return data(); }                     ///< the first element
    T* end() requires host_memory<Backend> { return data() + size(); }              ///< past the last element
    T const* begin() const requires host_memory<Backend> { return data(); }         ///< the first element
    T const* end() const requires host_memory<Backend> { return data() + size(); }  ///< past the last element

    /// A view of all elements, valid while the tensor exists.
    [[nodiscard]] calm::view<T, Extents, Backend> view() { return {data(), extents_}; }
    /// A read-only view of all elements.
    [[nodiscard]] calm::view<T const, Extents, Backend> view() const { return {data(), extents_}; }
    /// Converts to a view, also with fewer static sizes.
    template <class Other>
    requires std::is_convertible_v<Extents, Other>
    operator calm::view<T, Other, Backend>() & { return view(); }
    /// Converts to a read-only view.
    template <class Other>
    requires std::is_convertible_v<Extents, Other>
    operator calm::view<T const, Other, Backend>() const& { return view(); }

private:
    static void require_memory(bool there, Extents const& shape) {
        require(there, errc::memory, "calm::tensor: expected memory for a shape of ", shape, "; use smaller shapes");
    }
    static std::size_t bytes(Extents const& shape) {
        constexpr std::size_t unit = detail::memory_alignment;
        auto const least = detail::bytes_of_shape<T>(shape);
        require_memory(least.has_value(), shape);
        return (*least + unit - 1) / unit * unit;
    }
    struct release {
        void operator()(T* p) const { memory::release(p); }
    };
    std::unique_ptr<T[], release> data_;
    [[no_unique_address]] Extents extents_;
};

}  // namespace calm
