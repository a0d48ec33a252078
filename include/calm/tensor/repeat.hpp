#pragma once
// Rows that stand for several: what is computed once for N neighbouring rows, beside what each of them has.

#include <algorithm>
#include <type_traits>

#include "calm/tensor/block/repeat.hpp"
#include "calm/tensor/rows.hpp"

namespace calm {

namespace detail {

// How the cpu runs the verbs below; executors of blocks do it in block/repeat.hpp.
template <class T>
void run_repeat_rows(context<cpu> const& ctx, T* x, T const* y, index_t count, index_t each, index_t width) {
    ctx.parallel_ranges(count, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin * each; i < end * each; ++i) std::copy_n(y + i / each * width, width, x + i * width);
    });
}
template <class T>
void run_sum_repeated_rows(context<cpu> const& ctx, T* y, T const* x, index_t count, index_t each, index_t width) {
    ctx.parallel_ranges(count, 16, [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            std::fill_n(y + r * width, width, T{});
            for (index_t n = 0; n < each; ++n) add_into(y + r * width, x + (r * each + n) * width, width);
        }
    });
}

// N of `many` = N `few` rows.
inline index_t repeats(char const* verb, index_t many, index_t few) {
    require(few > 0 ? many % few == 0 : many == 0, errc::usage, verb, ": expected a whole number of rows for each of ",
            few, ", found ", many);
    return few > 0 ? many / few : 0;
}

}  // namespace detail

// x (R N, D) = y (R, D), every row N times. Throws errc::usage where there is no such N.
template <class T, index_t D, class Backend>
void repeat_rows(context<Backend> const& ctx, matrix_view<T, D, Backend> const& x,
                 std::type_identity_t<matrix_view<T const, D, Backend>> const& y) {
    index_t const each = detail::repeats("calm::repeat_rows", x.extent(0), y.extent(0));
    detail::run_repeat_rows(ctx, x.data(), y.data(), y.extent(0), each, D);
}

// y (R, D) = the sums of N neighbouring rows of x (R N, D), in order. Throws errc::usage where there is no such N.
template <class T, index_t D, class Backend>
void sum_repeated_rows(context<Backend> const& ctx, matrix_view<T, D, Backend> const& y,
                       std::type_identity_t<matrix_view<T const, D, Backend>> const& x) {
    index_t const each = detail::repeats("calm::sum_repeated_rows", x.extent(0), y.extent(0));
    detail::run_sum_repeated_rows(ctx, y.data(), x.data(), y.extent(0), each, D);
}

}  // namespace calm
