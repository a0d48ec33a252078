#pragma once
// What operations take, tensors and views alike, and how they check shapes: once, before anything runs.

#include <type_traits>
#include <utility>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/tensor.hpp"

namespace calm {

namespace detail {

template <class T, class E, class B> view<T, E, B> as_view(tensor<T, E, B>& x) {
    return x.view();
}
template <class T, class E, class B> view<T const, E, B> as_view(tensor<T, E, B> const& x) {
    return x.view();
}
template <class T, class E, class B> view<T, E, B> as_view(view<T, E, B> const& x) {
    return x;
}

}  // namespace detail

// A tensor or a view.
template <class X>
concept tensor_like = requires(std::remove_reference_t<X>& x) {
    detail::as_view(x);
};

namespace detail {

template <tensor_like X> using view_of = decltype(as_view(std::declval<std::remove_reference_t<X>&>()));
template <tensor_like X> using scalar_of = typename view_of<X>::value_type;
template <tensor_like X> using backend_of = typename view_of<X>::backend;
// D of a shape (R, D), or dyn.
template <tensor_like X>
inline constexpr index_t columns_of = view_of<X>::extents_type::static_extent(view_of<X>::extents_type::rank - 1);

template <tensor_like X> using computed_of = computed_in<scalar_of<X>>;

// Types that follow from one operand X (R, D) of an operation: its context, and its other operands, which convert to
// them.
template <tensor_like X> using context_of = std::type_identity_t<context<backend_of<X>>>;
template <tensor_like X, class T = computed_of<X>>
using rows_like = std::type_identity_t<matrix_view<T, columns_of<X>, backend_of<X>>>;
template <tensor_like X> using rows_read = rows_like<X, computed_of<X> const>;
template <tensor_like X> using rows_stored = rows_like<X, scalar_of<X> const>;  // of X's own element type
template <tensor_like X, class T = computed_of<X>>
using row_like = std::type_identity_t<vector_view<T, columns_of<X>, backend_of<X>>>;
template <tensor_like X> using row_read = row_like<X, computed_of<X> const>;
template <tensor_like X, class T = computed_of<X>>
using numbers_like = std::type_identity_t<vector_view<T, dyn, backend_of<X>>>;
template <tensor_like X> using numbers_read = numbers_like<X, computed_of<X> const>;
// Memory for positions of sequences, (B, room, D).
template <tensor_like X, class T = computed_of<X>>
using positions_like = std::type_identity_t<view<T, extents<dyn, dyn, columns_of<X>>, backend_of<X>>>;
template <tensor_like X> using positions_read = positions_like<X, computed_of<X> const>;

// The destination (R, D) of an operation, as a view.
template <tensor_like Y> rows_like<Y, scalar_of<Y>> written_rows(Y& y) {
    static_assert(!std::is_const_v<typename view_of<Y>::element_type>,
                  "calm: an operation's destination comes first and must be writable");
    return as_view(y);
}

// These throw errc::usage if an operand has another shape than the operation expects.
inline void require_shape(char const* operation, char const* what, extents<dyn, dyn> const& found,
                          extents<dyn, dyn> const& expected) {
    require(found == expected, errc::usage, operation, ": expected ", what, " of shape ", expected, ", found ", found);
}
inline void require_shape(char const* operation, char const* what, extents<dyn, dyn, dyn> const& found,
                          extents<dyn, dyn, dyn> const& expected) {
    require(found == expected, errc::usage, operation, ": expected ", what, " of shape ", expected, ", found ", found);
}
inline void require_size(char const* operation, char const* what, index_t found, index_t expected) {
    require(found == expected, errc::usage, operation, ": expected ", what, " of ", expected, " numbers, found ",
            found);
}

// How many of `many` rows belong to each of `few`. Throws errc::usage if `few` does not divide `many`.
inline index_t rows_of_each(char const* operation, index_t many, index_t few) {
    require(few > 0 ? many % few == 0 : many == 0, errc::usage, operation,
            ": expected a whole number of rows for each of ", few, ", found ", many);
    return few > 0 ? many / few : 0;
}

}  // namespace detail

}  // namespace calm
