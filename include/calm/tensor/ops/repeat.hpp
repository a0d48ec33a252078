#pragma once
/// \file
/// Repeating rows and summing repeated rows, for values that N neighbouring rows share. On a device x may be bf16 while
/// y is float.
/// \shows{tests/tensor/repeat_test.cpp,rows_are_repeated_and_summed_back}

#include <algorithm>

#include "calm/tensor/detail/core/tensor_like.hpp"
#include "calm/tensor/detail/kernels/block/repeat.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

namespace detail {

// The CPU implementation; the one for block backends is in detail/kernels/block/repeat.hpp.
template <class T>
void run_repeat_interleave(context<cpu> const& ctx, T* x, T const* y, index_t count, index_t each, index_t width) {
    ctx.parallel_ranges(count, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin * each; i < end * each; ++i) std::copy_n(y + i / each * width, width, x + i * width);
    });
}
template <class T>
void run_segment_sum(context<cpu> const& ctx, T* y, T const* x, index_t count, index_t each, index_t width) {
    ctx.parallel_ranges(count, 16, [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            std::fill_n(y + r * width, width, T{});
            for (index_t n = 0; n < each; ++n) add_into(y + r * width, x + (r * each + n) * width, width);
        }
    });
}

}  // namespace detail

/// x (R N, D) = y (R, D), every row N times. Throws errc::usage if there is no such N, or widths differ.
template <tensor_like X>
void repeat_interleave(detail::context_of<X> const& ctx, X&& x, detail::rows_read<X> const& y) {
    auto const out = detail::written_rows(x);
    index_t const each = detail::rows_of_each("calm::repeat_interleave", out.extent(0), y.extent(0));
    detail::require_size("calm::repeat_interleave", "rows", y.extent(1), out.extent(1));
    detail::run_repeat_interleave(ctx, out.data(), y.data(), y.extent(0), each, y.extent(1));
}

/// y (R, D) = the sums of N neighbouring rows of x (R N, D), in order. Throws errc::usage if there is no such N, or
/// widths differ.
template <tensor_like Y, tensor_like X> void segment_sum(detail::context_of<Y> const& ctx, Y&& y, X const& rows_of_x) {
    auto const out = detail::written_rows(y);
    detail::rows_like<Y, detail::scalar_of<X> const> const x = detail::as_view(rows_of_x);
    index_t const each = detail::rows_of_each("calm::segment_sum", x.extent(0), out.extent(0));
    detail::require_size("calm::segment_sum", "rows", x.extent(1), out.extent(1));
    detail::run_segment_sum(ctx, out.data(), x.data(), out.extent(0), each, out.extent(1));
}

}  // namespace calm
