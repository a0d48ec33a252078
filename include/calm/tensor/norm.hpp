#pragma once
// Normalisation of rows, forward and backward. Statistics are kept, not the normalised rows.

#include <type_traits>

#include "calm/tensor/block/norm.hpp"
#include "calm/tensor/cpu/norm.hpp"
#include "calm/tensor/expr.hpp"

namespace calm {

namespace detail {
// Operands that follow from the destination's type: tensors and views of them convert.
template <class T, index_t D, class Backend> using rows_read = std::type_identity_t<matrix_view<T const, D, Backend>>;
template <class T, class Backend> using row_numbers = std::type_identity_t<vector_view<T, dyn, Backend>>;
template <class T, index_t D, class Backend> using row_written = std::type_identity_t<view<T, extents<D>, Backend>>;
template <class T, index_t D, class Backend> using row_read = row_written<T const, D, Backend>;
}  // namespace detail

// y (R, D) = x / sqrt(mean(x^2) + eps) * w (D); r (R) keeps the reciprocal roots. Zhang and Sennrich 2019.
template <class T, index_t D, class Backend>
void rms_norm(context<Backend>& ctx, matrix_view<T, D, Backend> const& y, detail::row_numbers<T, Backend> const& r,
              detail::rows_read<T, D, Backend> const& x, detail::row_read<T, D, Backend> const& w, double eps) {
    evaluate(ctx, y, x * kept(r, 1.0 / sqrt(row_mean_square(x) + eps)) * w);
}

// From dy (R, D): dx (R, D) is overwritten, dw (D) accumulates.
template <class T, index_t D, class Backend>
void rms_norm_back(context<Backend>& ctx, matrix_view<T, D, Backend> const& dx,
                   detail::row_written<T, D, Backend> const& dw, detail::rows_read<T, D, Backend> const& dy,
                   detail::rows_read<T, D, Backend> const& x, detail::row_read<T, D, Backend> const& w,
                   detail::row_numbers<T const, Backend> const& r) {
    detail::run_rms_norm_back(ctx, dx.data(), dw.data(), dy.data(), x.data(), w.data(), r.data(), x.extent(0),
                              x.extent(1));
}

// y (R, D) = (x - mean) / sqrt(variance + eps) * w + b, w and b (D); mean (R) and r (R), the reciprocal roots, are
// kept. Ba, Kiros and Hinton 2016.
template <class T, index_t D, class Backend>
void layer_norm(context<Backend>& ctx, matrix_view<T, D, Backend> const& y, detail::row_numbers<T, Backend> const& mean,
                detail::row_numbers<T, Backend> const& r, detail::rows_read<T, D, Backend> const& x,
                detail::row_read<T, D, Backend> const& w, detail::row_read<T, D, Backend> const& b, double eps) {
    detail::run_layer_norm(ctx, y.data(), mean.data(), r.data(), x.data(), w.data(), b.data(), x.extent(0), x.extent(1),
                           eps);
}

// From dy (R, D): dx (R, D) is overwritten, dw and db (D) accumulate.
template <class T, index_t D, class Backend>
void layer_norm_back(context<Backend>& ctx, matrix_view<T, D, Backend> const& dx,
                     detail::row_written<T, D, Backend> const& dw, detail::row_written<T, D, Backend> const& db,
                     detail::rows_read<T, D, Backend> const& dy, detail::rows_read<T, D, Backend> const& x,
                     detail::row_read<T, D, Backend> const& w, detail::row_numbers<T const, Backend> const& mean,
                     detail::row_numbers<T const, Backend> const& r) {
    detail::run_layer_norm_back(ctx, dx.data(), dw.data(), db.data(), dy.data(), x.data(), w.data(), mean.data(),
                                r.data(), x.extent(0), x.extent(1));
}

}  // namespace calm
