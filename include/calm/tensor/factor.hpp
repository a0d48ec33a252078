#pragma once
// Rows that products alone read. A device that multiplies in bf16 keeps them as its products round them: to the same
// bits, in half of the memory.

#include <concepts>
#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/context.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

namespace detail {

// Rows (R, Columns) of a device in fp32, or in bf16; T is float, or const where they are not to be written.
template <class T, index_t Columns, class Backend> class device_factor {
public:
    using rounded_type = std::conditional_t<std::is_const_v<T>, bf16 const, bf16>;
    using rows_view = matrix_view<T, Columns, Backend>;
    using rounded_view = matrix_view<rounded_type, Columns, Backend>;

    constexpr device_factor() = default;
    // In fp32.
    template <std::convertible_to<rows_view> X>
    constexpr device_factor(X const& x) : in_fp32_(x) {}  // NOLINT(google-explicit-constructor): a view
    // In bf16.
    constexpr explicit device_factor(rounded_view const& x) : in_bf16_(x), is_rounded_(true) {}
    // The same rows, not to be written.
    template <viewed_as<T> U>
    constexpr device_factor(device_factor<U, Columns, Backend> const& x) :
        // NOLINT(google-explicit-constructor)
        in_fp32_(x.in_fp32()), in_bf16_(x.in_bf16()), is_rounded_(x.is_rounded()) {}

    // Whether they are in bf16.
    [[nodiscard]] constexpr bool is_rounded() const { return is_rounded_; }
    [[nodiscard]] constexpr rows_view const& in_fp32() const { return in_fp32_; }  // without memory where they are not
    [[nodiscard]] constexpr rounded_view const& in_bf16() const { return in_bf16_; }  // the same
    [[nodiscard]] constexpr auto const& extents() const {
        return is_rounded_ ? in_bf16_.extents() : in_fp32_.extents();
    }
    [[nodiscard]] constexpr index_t extent(std::size_t r) const { return extents()[r]; }

private:
    rows_view in_fp32_;
    rounded_view in_bf16_;
    bool is_rounded_ = false;
};

// Products of a device of so few rows stay in fp32: to round the other factor takes longer than to read it.
inline constexpr index_t few_rows_of_a_device = 64;

// Whether a device keeps factors (rows, columns) rounded: a row of them is whole groups of 16 bytes.
template <device_memory Backend> bool keeps_rounded(context<Backend> const& ctx, index_t rows, index_t columns) {
    return ctx.products_in_bf16 && rows > few_rows_of_a_device && columns % 8 == 0;
}

template <class T, class Backend> inline constexpr bool may_be_rounded = false;
template <class T, device_memory Backend>
inline constexpr bool may_be_rounded<T, Backend> = std::is_same_v<std::remove_const_t<T>, float>;

template <class T, index_t Columns, class Backend> struct factor_rows {
    using type = matrix_view<T, Columns, Backend>;
};
template <class T, index_t Columns, class Backend>
requires may_be_rounded<T, Backend>
struct factor_rows<T, Columns, Backend> {
    using type = device_factor<T, Columns, Backend>;
};

}  // namespace detail

// Rows (R, Columns) that products alone read: of a device's float they may be rounded, all others are a view. A view
// converts to it.
template <class T, index_t Columns, class Backend>
using factor = typename detail::factor_rows<T, Columns, Backend>::type;

// Memory for so many of them, rounded where this context's products would round them.
template <class T, index_t Columns, class Backend>
factor<T, Columns, Backend> take_factor(context<Backend> const& ctx, arena<Backend>& memory, index_t rows) {
    extents<dyn, Columns> const shape(rows);
    if constexpr (detail::may_be_rounded<T, Backend>)
        if (detail::keeps_rounded(ctx, rows, Columns))
            return factor<T, Columns, Backend>(memory.template take<bf16>(shape));
    return memory.template take<T>(shape);
}

// Who reads what a layer gives: where products alone do, it may be rounded for them.
enum class read_by { all, products };

// What a layer gives, rows (R, Columns) for such readers.
template <read_by Readers, class T, index_t Columns, class Backend>
using result_rows =
    std::conditional_t<Readers == read_by::products, factor<T, Columns, Backend>, matrix_view<T, Columns, Backend>>;

// Memory for so many of them.
template <read_by Readers, class T, index_t Columns, class Backend>
result_rows<Readers, T, Columns, Backend> take_result(context<Backend> const& ctx, arena<Backend>& memory,
                                                      index_t rows) {
    if constexpr (Readers == read_by::products)
        return take_factor<T, Columns>(ctx, memory, rows);
    else
        return memory.template take<T>(extents<dyn, Columns>(rows));
}

// f(the rows as a view), of the type that they are stored in.
template <class T, index_t Columns, class Backend, class F>
void with_numbers(matrix_view<T, Columns, Backend> const& x, F const& f) {
    f(x);
}
template <class T, index_t Columns, class Backend, class F>
void with_numbers(detail::device_factor<T, Columns, Backend> const& x, F const& f) {
    if (x.is_rounded())
        f(x.in_bf16());
    else
        f(x.in_fp32());
}

}  // namespace calm
