#pragma once
/// \file
/// Tensors and views in host memory as text. Copy a device's tensor to the host first (core/copy.hpp).
/// \shows{tests/tensor/print_test.cpp,a_tensor_is_printed_row_by_row}

#include <array>
#include <concepts>
#include <cstddef>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>

#include "calm/base/detail/number_text.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/core/view.hpp"

namespace calm {

namespace detail {

template <class T> std::string text_of_element(T const& x) {
    if constexpr (std::integral<T>)
        return std::to_string(x);
    else
        return six_digits(static_cast<double>(x));
}

// Of more elements than this, only the first and last few of each dimension are shown.
inline constexpr index_t most_shown = 1000;
inline constexpr index_t shown_at_ends = 3;

// Appends "[a, b]" for the last dimension, and nested lists, one per line, for the others.
template <class T>
void append_elements(std::string& text, T const* x, std::span<index_t const> sizes, std::size_t depth, bool all) {
    if (sizes.empty()) {
        text += text_of_element(*x);
        return;
    }
    index_t stride = 1;
    for (index_t const size : sizes.subspan(1)) stride *= size;
    bool const is_row = sizes.size() == 1;
    std::string const next = is_row ? ", " : ",\n" + std::string(depth + 1, ' ');
    text += '[';
    for (index_t i = 0; i < sizes[0]; ++i) {
        if (i > 0) text += next;
        if (!all && i == shown_at_ends && sizes[0] > 2 * shown_at_ends) {
            text += "..." + next;
            i = sizes[0] - shown_at_ends;
        }
        append_elements(text, x + i * stride, sizes.subspan(1), depth + 1, all);
    }
    text += ']';
}

}  // namespace detail

/// The elements with six digits as nested lists, one row per line: `"[[1, 2],\n [3, 4]]"`. Of more than 1,000 elements
/// only the first and last three of each dimension.
template <class T, class Extents, class Backend>
requires host_memory<Backend> std::string to_string(view<T, Extents, Backend> const& x) {
    std::array<index_t, Extents::rank + 1> sizes{};
    for (std::size_t r = 0; r < Extents::rank; ++r) sizes[r] = x.extent(r);
    std::string text;
    detail::append_elements(text, x.data(), std::span<index_t const>(sizes).first(Extents::rank), 0,
                            x.size() <= detail::most_shown);
    return text;
}
/// Of a tensor.
template <class T, class Extents, class Backend>
requires host_memory<Backend> std::string to_string(tensor<T, Extents, Backend> const& x) {
    return to_string(x.view());
}

/// Writes to_string(x).
template <class T, class Extents, class Backend>
requires host_memory<Backend> std::ostream& operator<<(std::ostream& out, view<T, Extents, Backend> const& x) {
    return out << to_string(x);
}
/// Of a tensor.
template <class T, class Extents, class Backend>
requires host_memory<Backend> std::ostream& operator<<(std::ostream& out, tensor<T, Extents, Backend> const& x) {
    return out << to_string(x);
}

}  // namespace calm
