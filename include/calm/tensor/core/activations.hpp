#pragma once
/// \file
/// Activations: rows that a layer saves or passes to the next layer. A device that multiplies in bf16 stores them in
/// bf16 where the layer allows it, which halves memory and traffic. Residual sums, inputs of norms and everything else
/// stay fp32.
/// \shows{tests/tensor/activations_test.cpp,activations_are_rounded_where_products_round}

#include <concepts>
#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/base/error.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/view.hpp"

namespace calm {

namespace detail {

// Rows (R, Columns) on a device, stored in fp32 or bf16. T is float, or float const for read-only rows.
template <class T, index_t Columns, class Backend> class device_activations {
public:
    using rounded_type = std::conditional_t<std::is_const_v<T>, bf16 const, bf16>;
    using full_view = matrix_view<T, Columns, Backend>;
    using rounded_view = matrix_view<rounded_type, Columns, Backend>;

    constexpr device_activations() = default;
    // Wraps fp32 rows.
    template <std::convertible_to<full_view> X>
    constexpr device_activations(X const& x) : full_(x) {}  // NOLINT(google-explicit-constructor): a view
    // Wraps bf16 rows.
    constexpr explicit device_activations(rounded_view const& x) : rounded_(x), is_rounded_(true) {}
    // A read-only reference to the rows.
    template <viewed_as<T> U>
    constexpr device_activations(device_activations<U, Columns, Backend> const& x) :
        // NOLINT: as a view does
        full_(x.full()), rounded_(x.rounded()), is_rounded_(x.is_rounded()) {}

    [[nodiscard]] constexpr bool is_rounded() const { return is_rounded_; }           // whether the rows are bf16
    [[nodiscard]] constexpr full_view const& full() const { return full_; }           // null if rounded
    [[nodiscard]] constexpr rounded_view const& rounded() const { return rounded_; }  // null if not rounded
    // The shape.
    [[nodiscard]] constexpr auto const& extents() const { return is_rounded_ ? rounded_.extents() : full_.extents(); }
    // Size r of the shape.
    [[nodiscard]] constexpr index_t extent(std::size_t r) const { return extents()[r]; }

private:
    full_view full_;
    rounded_view rounded_;
    bool is_rounded_ = false;
};

// Device products of at most this many rows stay in fp32: rounding the other factor would take longer than reading it.
inline constexpr index_t skinny_rows_of_a_device = 64;

// Whether a device stores (rows, columns) in bf16: its products round so many rows, and the width is a multiple of 8
// elements (16 bytes).
template <device_memory Backend> bool rounds_rows(context<Backend> const& ctx, index_t rows, index_t columns) {
    return ctx.products_in_bf16 && rows > skinny_rows_of_a_device && columns % 8 == 0;
}

template <class T, class Backend> inline constexpr bool may_be_rounded = false;
template <class T, device_memory Backend>
inline constexpr bool may_be_rounded<T, Backend> = std::is_same_v<std::remove_const_t<T>, float>;

template <class T, index_t Columns, class Backend> struct activation_rows {
    using type = matrix_view<T, Columns, Backend>;
};
template <class T, index_t Columns, class Backend>
requires may_be_rounded<T, Backend>
struct activation_rows<T, Columns, Backend> {
    using type = device_activations<T, Columns, Backend>;
};

}  // namespace detail

/// Rows (R, Columns): for float on a device a type that may hold bf16, otherwise a view. A view converts to it.
template <class T, index_t Columns, class Backend>
using activations = typename detail::activation_rows<T, Columns, Backend>::type;

/// Takes memory for that many rows: bf16 if this context multiplies that many rows in bf16.
template <class T, index_t Columns, class Backend>
activations<T, Columns, Backend> take_activations(context<Backend> const& ctx, arena<Backend>& memory, index_t rows) {
    extents<dyn, Columns> const shape(rows);
    if constexpr (detail::may_be_rounded<T, Backend>)
        if (detail::rounds_rows(ctx, rows, Columns))
            return activations<T, Columns, Backend>(memory.template take<bf16>(shape));
    return memory.template take<T>(shape);
}

/// How a layer stores its result: `numbers` in full precision, `activations` possibly in bf16.
enum class result_as { numbers, activations };

/// A layer's result, rows (R, Columns).
template <result_as How, class T, index_t Columns, class Backend>
using result_rows = std::conditional_t<How == result_as::activations, activations<T, Columns, Backend>,
                                       matrix_view<T, Columns, Backend>>;

/// Takes memory for a layer's result of that many rows.
template <result_as How, class T, index_t Columns, class Backend>
result_rows<How, T, Columns, Backend> take_result(context<Backend> const& ctx, arena<Backend>& memory, index_t rows) {
    if constexpr (How == result_as::activations)
        return take_activations<T, Columns>(ctx, memory, rows);
    else
        return memory.template take<T>(extents<dyn, Columns>(rows));
}

/// Calls f with the rows as views, all fp32 or all bf16. Throws errc::usage for a mixture.
template <class F, class... T, index_t... Columns, class Backend>
void with_numbers(F const& f, view<T, extents<dyn, Columns>, Backend> const&... x) {
    f(x...);
}
/// For rows on a device.
template <class F, class... T, index_t... Columns, class Backend>
void with_numbers(F const& f, detail::device_activations<T, Columns, Backend> const&... x) {
    bool const any = (x.is_rounded() || ...), all = (x.is_rounded() && ...);
    require(any == all, errc::usage, "calm::with_numbers: expected all activations rounded, or none, found both");
    if (all)
        f(x.rounded()...);
    else
        f(x.full()...);
}

}  // namespace calm
