#pragma once
/// \file
/// A view is a pointer and extents: row-major, contiguous, trivially copyable. It is all that kernels take.
/// \shows{tests/tensor/view_test.cpp,rows_of_the_leading_dimension}

#include <array>
#include <concepts>
#include <type_traits>

#include "calm/tensor/core/backend.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

namespace detail {
template <class> inline constexpr bool is_expression = false;
// Whether elements U can be viewed as T: the same, or with const added.
template <class U, class T>
concept viewed_as = std::is_convertible_v<U (*)[], T (*)[]>;

// The row-major position of an element. Throws errc::usage for an index outside of the shape.
template <index_t... Sizes>
index_t position_of(extents<Sizes...> const& shape, std::array<index_t, sizeof...(Sizes)> const& indices) {
    index_t at = 0;
    for (std::size_t r = 0; r < sizeof...(Sizes); ++r) {
        require(indices[r] >= 0 && indices[r] < shape[r], errc::usage,
                "calm::tensor: expected an index from 0 to below ", shape[r], " in dimension ", r, " of ", shape,
                ", found ", indices[r]);
        at = at * shape[r] + indices[r];
    }
    return at;
}
}  // namespace detail

/// Refers to elements that something else owns, on the host or on a device; T const if they are read only. Copied and
/// passed by value.
template <class T, class Extents, class Backend = cpu> class view {
public:
    using element_type = T;
    using value_type = std::remove_const_t<T>;
    using extents_type = Extents;
    using backend = Backend;

    constexpr view() = default;
    /// The elements from data on, in row-major order.
    CALM_HD constexpr view(T* data, Extents const& e) : data_(data), extents_(e) {}

    /// Converts to const elements, or to fewer static sizes.
    template <detail::viewed_as<T> U, std::convertible_to<Extents> Other>
    CALM_HD constexpr view(view<U, Other, Backend> const& other) : data_(other.data()), extents_(other.extents()) {}

    [[nodiscard]] CALM_HD constexpr T* data() const { return data_; }                    ///< the first element
    [[nodiscard]] CALM_HD constexpr Extents const& extents() const { return extents_; }  ///< the shape
    /// Size r of the shape.
    [[nodiscard]] CALM_HD constexpr index_t extent(std::size_t r) const { return extents_[r]; }
    [[nodiscard]] CALM_HD constexpr index_t size() const { return extents_.size(); }  ///< number of elements

    /// The element with one index per dimension, in host memory. Throws errc::usage for an index outside of the shape.
    /// Loops use operator[] or an expression, which check nothing per element.
    template <std::convertible_to<index_t>... Index> T& operator()(Index... indices) const {
        static_assert(host_memory<Backend>, "calm::view: x(i, j) reads host memory: copy a tensor of a device to the "
                                            "host first, with copy(ctx, here, there)");
        static_assert(sizeof...(Index) == Extents::rank, "calm::view: expected one index per dimension, as in x(i, j)");
        return data_[detail::position_of(extents_, {static_cast<index_t>(indices)...})];
    }
    /// Element i in row-major order, unchecked; for host memory.
    constexpr T& operator[](index_t i) const requires host_memory<Backend> { return data_[i]; }
    constexpr T* begin() const requires host_memory<Backend> { return data_; }         ///< the first element
    constexpr T* end() const requires host_memory<Backend> { return data_ + size(); }  ///< past the last element

    /// y = expression: one pass, on the calling thread. evaluate(ctx, y, expression) uses the context's threads. Throws
    /// errc::usage if the shapes differ. Defined in expr.hpp.
    template <class Expression>
    requires detail::is_expression<std::remove_cvref_t<Expression>> view const&
    operator=(Expression&& expression) const;
    constexpr view(view const&) = default;             ///< refers to the same elements
    constexpr view& operator=(view const&) = default;  ///< refers to the same elements; none is copied

private:
    T* data_ = nullptr;
    [[no_unique_address]] Extents extents_{};
};

/// The elements under another shape of equal size; throws errc::usage with both shapes.
template <class Shape, class T, class E, class Backend>
constexpr view<T, Shape, Backend> reshape(view<T, E, Backend> const& x, Shape const& shape) {
    index_t const wanted = checked_size(shape);
    require(x.size() == wanted, errc::usage, "calm::reshape: ", x.extents(), " has ", x.size(), " elements, ", shape,
            " has ", wanted);
    return {x.data(), shape};
}

/// Rows first .. first + count - 1 of the leading dimension; the static sizes of the other dimensions are kept. Throws
/// errc::usage if some of these rows do not exist.
template <class T, index_t First, index_t... Rest, class Backend>
constexpr view<T, extents<dyn, Rest...>, Backend> rows(view<T, extents<First, Rest...>, Backend> const& x,
                                                       index_t first, index_t count) {
    require(first >= 0 && count >= 0 && first <= x.extent(0) && count <= x.extent(0) - first, errc::usage,
            "calm::rows: expected rows of a shape ", x.extents(), ", found ", count, " rows from row ", first);
    index_t const stride = x.extent(0) > 0 ? x.size() / x.extent(0) : 0;
    return {x.data() + first * stride, detail::with_rows(x.extents(), count)};
}

/// Rows of Columns elements, as layers take and return them.
template <class T, index_t Columns, class Backend = cpu> using matrix_view = view<T, extents<dyn, Columns>, Backend>;
/// A vector of N elements.
template <class T, index_t N = dyn, class Backend = cpu> using vector_view = view<T, extents<N>, Backend>;

}  // namespace calm
