#pragma once
// A tuple without constructors and comparisons: it compiles in a fraction of the time of std::tuple.

#include <cstddef>
#include <type_traits>
#include <utility>

namespace calm::detail {

template <std::size_t I, class T> struct tuple_part { T value{}; };
template <class Places, class... T> struct tuple_parts;
template <std::size_t... I, class... T> struct tuple_parts<std::index_sequence<I...>, T...> : tuple_part<I, T>... {};

// An aggregate: tuple<int, char>{{1}, {'a'}}.
template <class... T> using tuple = tuple_parts<std::index_sequence_for<T...>, T...>;

// Value I of a tuple, from 0.
template <std::size_t I, class T> constexpr T& get(tuple_part<I, T>& part) {
    return part.value;
}
template <std::size_t I, class T> constexpr T const& get(tuple_part<I, T> const& part) {
    return part.value;
}

template <std::size_t I, class T> std::type_identity<T> type_of_part(tuple_part<I, T> const&);
// The type of value I.
template <std::size_t I, class Tuple>
using tuple_element_t = typename decltype(type_of_part<I>(std::declval<Tuple const&>()))::type;

}  // namespace calm::detail

// For structured bindings.
template <std::size_t... I, class... T>
struct std::tuple_size<calm::detail::tuple_parts<std::index_sequence<I...>, T...>>
    : std::integral_constant<std::size_t, sizeof...(T)> {};
template <std::size_t I, class Places, class... T>
struct std::tuple_element<I, calm::detail::tuple_parts<Places, T...>> {
    using type = calm::detail::tuple_element_t<I, calm::detail::tuple_parts<Places, T...>>;
};
