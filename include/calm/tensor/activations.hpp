#pragma once
// Activations: rows that a layer keeps, or gives to the next. A device that multiplies in bf16 stores those in bf16
// that a layer says may be: in half of the memory, which is half of the time to read and write them. In fp32 stay the
// sums that go from layer to layer, what norms are given, and all that is not activations.

#include <concepts>
#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/base/error.hpp"
#include "calm/tensor/context.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

namespace detail {

// Rows (R, Columns) of a device, stored in fp32 or in bf16; T is float, or const where they are not to be written.
template <class T, index_t Columns, class Backend> class device_activations {
public:
    using rounded_type = std::conditional_t<std::is_const_v<T>, bf16 const, bf16>;
    using full_view = matrix_view<T, Columns, Backend>;
    using rounded_view = matrix_view<rounded_type, Columns, Backend>;

    constexpr device_activations() = default;
    // In fp32.
    template <std::convertible_to<full_view> X>
    constexpr device_activations(X const& x) : full_(x) {}  // NOLINT(google-explicit-constructor): a view
    // In bf16.
    constexpr explicit device_activations(rounded_view const& x) : rounded_(x), is_rounded_(true) {}
    // The same rows, not to be written.
    template <viewed_as<T> U>
    constexpr device_activations(device_activations<U, Columns, Backend> const& x) :
        // NOLINT: as a view does
        full_(x.full()), rounded_(x.rounded()), is_rounded_(x.is_rounded()) {}

    [[nodiscard]] constexpr bool is_rounded() const { return is_rounded_; }  // whether they are in bf16
    [[nodiscard]] constexpr full_view const& full() const { return full_; }  // without memory where they are
    [[nodiscard]] constexpr rounded_view const& rounded() const {
        return rounded_;
    }  // without memory where they are not
    // The shape.
    [[nodiscard]] constexpr auto const& extents() const { return is_rounded_ ? rounded_.extents() : full_.extents(); }
    // Size r of it.
    [[nodiscard]] constexpr index_t extent(std::size_t r) const { return extents()[r]; }

private:
    full_view full_;
    rounded_view rounded_;
    bool is_rounded_ = false;
};

// Products of a device of so few rows stay in fp32: to round the other factor takes longer than to read it.
inline constexpr index_t few_rows_of_a_device = 64;

// Whether a device rounds rows (rows, columns): its products would, and a row is whole groups of 16 bytes.
template <device_memory Backend> bool rounds_rows(context<Backend> const& ctx, index_t rows, index_t columns) {
    return ctx.products_in_bf16 && rows > few_rows_of_a_device && columns % 8 == 0;
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

// Rows (R, Columns) that may be rounded, if they are float of a device; of all others a view. A view converts to it.
template <class T, index_t Columns, class Backend>
using activations = typename detail::activation_rows<T, Columns, Backend>::type;

// Memory for so many of them: in bf16 where this context multiplies so many in bf16.
template <class T, index_t Columns, class Backend>
activations<T, Columns, Backend> take_activations(context<Backend> const& ctx, arena<Backend>& memory, index_t rows) {
    extents<dyn, Columns> const shape(rows);
    if constexpr (detail::may_be_rounded<T, Backend>)
        if (detail::rounds_rows(ctx, rows, Columns))
            return activations<T, Columns, Backend>(memory.template take<bf16>(shape));
    return memory.template take<T>(shape);
}

// What a layer gives: numbers, which stay in full, or activations, which may be rounded.
enum class result_as { numbers, activations };

// A layer's result, rows (R, Columns).
template <result_as How, class T, index_t Columns, class Backend>
using result_rows = std::conditional_t<How == result_as::activations, activations<T, Columns, Backend>,
                                       matrix_view<T, Columns, Backend>>;

// Memory for so many of them.
template <result_as How, class T, index_t Columns, class Backend>
result_rows<How, T, Columns, Backend> take_result(context<Backend> const& ctx, arena<Backend>& memory, index_t rows) {
    if constexpr (How == result_as::activations)
        return take_activations<T, Columns>(ctx, memory, rows);
    else
        return memory.template take<T>(extents<dyn, Columns>(rows));
}

// f(the rows as views): all of them in fp32, or all in bf16. Throws errc::usage where some are and some are not.
template <class F, class... T, index_t... Columns, class Backend>
void with_numbers(F const& f, view<T, extents<dyn, Columns>, Backend> const&... x) {
    f(x...);
}
// The same of a device's.
template <class F, class... T, index_t... Columns, class Backend>
void with_numbers(F const& f, detail::device_activations<T, Columns, Backend> const&... x) {
    bool const any = (x.is_rounded() || ...), all = (x.is_rounded() && ...);
    require(any == all, errc::usage,
            "calm::with_numbers: expected activations that are all rounded, or none, found both");
    if (all)
        f(x.rounded()...);
    else
        f(x.full()...);
}

}  // namespace calm
