#pragma once
/// \file
/// Shapes: any mixture of static and dynamic sizes. Only dynamic sizes are stored.
/// \shows{tests/tensor/extents_test.cpp,sizes_in_order}

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "calm/base/detail/checked.hpp"
#include "calm/base/error.hpp"
#include "calm/base/host_device.hpp"

namespace calm {

using index_t = std::int64_t;  ///< sizes and positions; signed, because differences are
using row_id = std::int32_t;   ///< index of a row, in lists of rows to gather

/// A size known only at run time.
inline constexpr index_t dyn = -1;

/// extents<dyn, dyn, 768> e{B, P}: a shape of rank 3; the constructor takes the dynamic sizes, in order.
template <index_t... Sizes> class extents {
    static_assert(((Sizes == dyn || Sizes >= 0) && ...), "calm::extents: a static size is at least 0, or calm::dyn");

public:
    static constexpr std::size_t rank = sizeof...(Sizes);  ///< number of sizes
    /// Number of dynamic sizes.
    static constexpr std::size_t rank_dynamic = ((Sizes == dyn ? 1U : 0U) + ... + 0U);

    /// All dynamic sizes are 0.
    constexpr extents() = default;

    /// Takes the dynamic sizes, in order.
    template <class... Index>
    requires(sizeof...(Index) == rank_dynamic && rank_dynamic > 0 &&
             (std::is_convertible_v<Index, index_t> && ...)) constexpr explicit(sizeof...(Index) == 1)
        extents(Index... sizes) :
        dynamic_{{static_cast<index_t>(sizes)...}} {}

    /// Converts static sizes to dynamic ones; the way back is extents_cast.
    template <index_t... Other>
    requires(sizeof...(Other) == rank && rank_dynamic > 0 && !std::is_same_v<extents<Other...>, extents> &&
             ((Sizes == dyn || Sizes == Other) && ...)) constexpr extents(extents<Other...> const& other) {
        std::size_t d = 0;
        for (std::size_t r = 0; r < rank; ++r)
            if (static_extent(r) == dyn) dynamic_[d++] = other[r];
    }

    [[nodiscard]] static constexpr index_t static_extent(std::size_t r) { return sizes_[r]; }  ///< size r, or dyn

    /// Size r, 0 <= r < rank.
    CALM_HD constexpr index_t operator[](std::size_t r) const {
        constexpr std::array<index_t, rank + 1> sizes{Sizes..., 0};
        if (sizes[r] != dyn) return sizes[r];
        if constexpr (rank_dynamic > 0) {
            std::size_t d = 0;
            for (std::size_t i = 0; i < r; ++i) d += sizes[i] == dyn ? 1U : 0U;
            return dynamic_[d];
        } else
            return dyn;
    }

    /// Number of elements.
    [[nodiscard]] CALM_HD constexpr index_t size() const {
        index_t n = 1;
        for (std::size_t r = 0; r < rank; ++r) n *= (*this)[r];
        return n;
    }

    /// Compares sizes, static or dynamic.
    template <index_t... Other> friend constexpr bool operator==(extents const& a, extents<Other...> const& b) {
        if constexpr (sizeof...(Other) != rank)
            return false;
        else {
            for (std::size_t r = 0; r < rank; ++r)
                if (a[r] != b[r]) return false;
            return true;
        }
    }

private:
    static constexpr std::array<index_t, rank + 1> sizes_{Sizes..., 0};
    struct nothing {};
    using storage = std::conditional_t<rank_dynamic == 0, nothing, std::array<index_t, rank_dynamic>>;
    [[no_unique_address]] storage dynamic_{};
};

namespace detail {
// Bytes of a shape of elements T; see bytes_of_sizes.
template <class T, index_t... Sizes> constexpr std::optional<std::size_t> bytes_of_shape(extents<Sizes...> const& e) {
    std::array<index_t, sizeof...(Sizes) + 1> sizes{};
    for (std::size_t r = 0; r < sizeof...(Sizes); ++r) sizes[r] = e[r];
    return bytes_of_sizes({sizes.data(), sizeof...(Sizes)}, sizeof(T));
}

[[gnu::cold]] inline std::string text_of_sizes(index_t const* sizes, std::size_t rank) {
    std::string text = "(";
    for (std::size_t r = 0; r < rank; ++r) text += (r > 0 ? ", " : "") + std::to_string(sizes[r]);
    return text + ")";
}
}  // namespace detail

/// "(2, 3, 768)"
template <index_t... Sizes> std::string to_string(extents<Sizes...> const& e) {
    std::array<index_t, sizeof...(Sizes) + 1> sizes{};
    for (std::size_t r = 0; r < sizeof...(Sizes); ++r) sizes[r] = e[r];
    return detail::text_of_sizes(sizes.data(), sizeof...(Sizes));
}

/// Converts dynamic to static sizes; throws errc::usage, with the expected size and the shape, if they differ.
template <class To, index_t... From> constexpr To extents_cast(extents<From...> const& from) {
    static_assert(To::rank == sizeof...(From), "calm::extents_cast: both shapes must have the same rank");
    std::array<index_t, To::rank_dynamic + 1> sizes{};
    std::size_t d = 0;
    for (std::size_t r = 0; r < To::rank; ++r) {
        if (To::static_extent(r) == dyn)
            sizes[d++] = from[r];
        else if (To::static_extent(r) != from[r])
            throw error(errc::usage, sentence("calm::extents_cast: expected size ", To::static_extent(r),
                                              " at position ", r, ", found shape ", from));
    }
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return To(sizes[I]...);
    }
    (std::make_index_sequence<To::rank_dynamic>{});
}

/// The number of elements of an unchecked shape. Throws errc::usage if it overflows.
template <index_t... Sizes> constexpr index_t checked_size(extents<Sizes...> const& e) {
    auto const count = detail::bytes_of_shape<char>(e);
    require(count.has_value(), errc::usage, "calm::extents: expected a shape whose elements can be counted, found ", e);
    return static_cast<index_t>(*count);
}

namespace detail {

// n as a T, which may be complex.
template <class T> CALM_HD constexpr T number(index_t n) {
    return static_cast<T>(static_cast<double>(n));
}

constexpr bool compatible(index_t a, index_t b) {
    return a == dyn || b == dyn || a == b;
}

template <index_t First, index_t... Rest>
constexpr extents<dyn, Rest...> with_rows(extents<First, Rest...> const& e, index_t rows) {
    std::array<index_t, 1 + sizeof...(Rest)> sizes{rows};
    for (std::size_t r = 1; r <= sizeof...(Rest); ++r) sizes[r] = e[r];
    return extents_cast<extents<dyn, Rest...>>([&]<std::size_t... I>(std::index_sequence<I...>) {
        return extents<((void)I, dyn)...>(sizes[I]...);
    }(std::make_index_sequence<1 + sizeof...(Rest)>{}));
}

}  // namespace detail

}  // namespace calm
