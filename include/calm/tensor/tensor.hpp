#pragma once
// A tensor owns its memory and only moves. Pass views.

#include <memory>
#include <new>

#include "calm/tensor/view.hpp"

namespace calm {

template <class T, class Extents, class Backend = cpu> class tensor {
    static_assert(host_memory<Backend>, "calm::tensor: this backend keeps its memory elsewhere");
    static_assert(std::is_trivially_copyable_v<T>, "calm::tensor: elements must be trivially copyable");

public:
    using element_type = T;
    using value_type = T;
    using extents_type = Extents;
    using backend = Backend;

    // Zeros of the shape.
    explicit tensor(Extents const& shape = Extents()) :
        data_(static_cast<T*>(::operator new (bytes(shape), std::align_val_t{64}))), extents_(shape) {
        std::uninitialized_fill_n(data_.get(), shape.size(), T{});
    }
    tensor(tensor&&) noexcept = default;
    tensor& operator=(tensor&&) noexcept = default;

    // y = expression: see expr.hpp.
    template <class Expression>
    requires detail::is_expression<std::remove_cvref_t<Expression>> tensor& operator=(Expression&& expression) {
        view() = static_cast<Expression&&>(expression);
        return *this;
    }

    [[nodiscard]] T* data() { return data_.get(); }
    [[nodiscard]] T const* data() const { return data_.get(); }
    [[nodiscard]] Extents const& extents() const { return extents_; }
    [[nodiscard]] index_t extent(std::size_t r) const { return extents_[r]; }
    [[nodiscard]] index_t size() const { return extents_.size(); }
    T& operator[](index_t i) { return data_[static_cast<std::size_t>(i)]; }
    T const& operator[](index_t i) const { return data_[static_cast<std::size_t>(i)]; }
    T* begin() { return data(); }
    T* end() { return data() + size(); }
    T const* begin() const { return data(); }
    T const* end() const { return data() + size(); }

    [[nodiscard]] calm::view<T, Extents, Backend> view() { return {data(), extents_}; }
    [[nodiscard]] calm::view<T const, Extents, Backend> view() const { return {data(), extents_}; }
    template <class Other>
    requires std::is_convertible_v<Extents, Other>
    operator calm::view<T, Other, Backend>() & { return view(); }
    template <class Other>
    requires std::is_convertible_v<Extents, Other>
    operator calm::view<T const, Other, Backend>() const& { return view(); }

private:
    static std::size_t bytes(Extents const& shape) {
        return (static_cast<std::size_t>(shape.size()) * sizeof(T) + 63) / 64 * 64;
    }
    struct release {
        void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
    };
    std::unique_ptr<T[], release> data_;
    [[no_unique_address]] Extents extents_;
};

}  // namespace calm
