#pragma once
/// \file
/// Normalisation of rows, forward and backward. The statistics are saved, not the normalised rows. On a device a
/// result, and its gradient dy, may be bf16 while all else is float.
/// \shows{tests/tensor/norm_test.cpp,a_row_is_normalised_forward_and_backward}

#include <optional>
#include <type_traits>

#include "calm/tensor/detail/kernels/block/norm.hpp"
#include "calm/tensor/detail/kernels/cpu/norm.hpp"
#include "calm/tensor/expr/expr.hpp"

namespace calm {

namespace detail {

// Checks the operands of a norm: x like the destination (R, D), the gain w (D), and r (R), one value per row.
template <class Matrix, class Row, class Numbers>
void require_shapes_of_norm(char const* operation, extents<dyn, dyn> const& shape, Matrix const& x, Row const& w,
                            Numbers const& r) {
    require_shape(operation, "x", x.extents(), shape);
    require_size(operation, "w", w.size(), shape[1]);
    require_size(operation, "r", r.size(), shape[0]);
}

// Writes a gradient to `out` by back(addend), which adds the addend's elements on block backends; elsewhere a separate
// pass does. Without an addend, back() is called.
template <class Backend, class Rows, class Addend, class Back>
void with_rows_added(context<Backend>& ctx, Rows const& out, std::optional<Addend> const& addend, Back const& back) {
    if constexpr (block_backend<Backend>) {
        back(addend ? addend->data() : nullptr);
    } else {
        back();
        if (addend) evaluate(ctx, out, out + *addend);
    }
}

}  // namespace detail

/// RMSNorm (Zhang and Sennrich 2019): y (R, D) = x / sqrt(mean(x^2) + eps) * w (D); r (R) keeps the reciprocal roots. A
/// row whose squares overflow becomes NaN. Throws errc::usage, as all functions here, if shapes do not fit.
template <tensor_like Y>
void rms_norm(detail::context_of<Y>& ctx, Y&& y, detail::numbers_like<Y> const& r, detail::rows_read<Y> const& x,
              detail::row_read<Y> const& w, double eps) {
    auto const out = detail::written_rows(y);
    detail::require_shapes_of_norm("calm::rms_norm", out.extents(), x, w, r);
    evaluate(ctx, out, x * tee(r, apply<op::reciprocal_root>(mean_square_axis1(x) + eps)) * w);
}

/// From dy (R, D): dx (R, D) is overwritten with the gradient plus `addend` (R, D), if given, which stays unchanged; dw
/// (D) accumulates.
template <tensor_like DX, tensor_like DY>
void rms_norm_back(detail::context_of<DX>& ctx, DX&& dx, detail::row_like<DX> const& dw, DY const& dy,
                   detail::rows_read<DX> const& x, detail::row_read<DX> const& w, detail::numbers_read<DX> const& r,
                   std::optional<detail::rows_read<DX>> const& addend = {}) {
    auto const out = detail::written_rows(dx);
    detail::rows_stored<DY> const grad_output = detail::as_view(dy);
    detail::require_shapes_of_norm("calm::rms_norm_back", out.extents(), x, w, r);
    if (addend) detail::require_shape("calm::rms_norm_back", "addend", addend->extents(), out.extents());
    detail::require_shape("calm::rms_norm_back", "dy", grad_output.extents(), out.extents());
    detail::require_size("calm::rms_norm_back", "dw", dw.size(), out.extent(1));
    detail::norm_forward<detail::computed_of<DX>> const forward{
        .x = x.data(), .w = w.data(), .mean = nullptr, .r = r.data(), .rows = out.extent(0), .n = out.extent(1)};
    detail::with_rows_added(ctx, out, addend, [&](auto const*... added) {
        detail::run_rms_norm_back(ctx, out.data(), dw.data(), grad_output.data(), forward, added...);
    });
}

/// LayerNorm (Ba, Kiros and Hinton 2016): y (R, D) = (x - mean) / sqrt(variance + eps) * w + b, with w and b (D). Keeps
/// mean (R) and the reciprocal roots r (R).
template <tensor_like Y>
void layer_norm(detail::context_of<Y>& ctx, Y&& y, detail::numbers_like<Y> const& mean,
                detail::numbers_like<Y> const& r, detail::rows_read<Y> const& x, detail::row_read<Y> const& w,
                detail::row_read<Y> const& b, double eps) {
    auto const out = detail::written_rows(y);
    detail::require_shapes_of_norm("calm::layer_norm", out.extents(), x, w, r);
    detail::require_size("calm::layer_norm", "mean", mean.size(), out.extent(0));
    detail::require_size("calm::layer_norm", "b", b.size(), out.extent(1));
    detail::layer_norm_input<detail::computed_of<Y>> const in{
        .x = x.data(), .w = w.data(), .b = b.data(), .rows = out.extent(0), .n = out.extent(1), .eps = eps};
    detail::run_layer_norm(ctx, out.data(), mean.data(), r.data(), in);
}

/// What layer_norm_back reads of the forward pass. X is a matrix (R, D) of its type.
template <tensor_like X> struct layer_norm_operands {
    detail::rows_read<X> x;        ///< (R, D)
    detail::row_read<X> w;         ///< (D)
    detail::numbers_read<X> mean;  ///< (R)
    detail::numbers_read<X> r;     ///< (R)
};

/// From dy (R, D): dx (R, D) is overwritten with the gradient plus `addend` (R, D), if given, which stays unchanged; dw
/// and db (D) accumulate.
template <tensor_like DX, tensor_like DY>
void layer_norm_back(detail::context_of<DX>& ctx, DX&& dx, detail::row_like<DX> const& dw,
                     detail::row_like<DX> const& db, DY const& dy,
                     std::type_identity_t<layer_norm_operands<DX>> const& forward,
                     std::optional<detail::rows_read<DX>> const& addend = {}) {
    auto const out = detail::written_rows(dx);
    detail::rows_stored<DY> const grad_output = detail::as_view(dy);
    auto const& [x, w, mean, r] = forward;
    detail::require_shapes_of_norm("calm::layer_norm_back", out.extents(), x, w, r);
    if (addend) detail::require_shape("calm::layer_norm_back", "addend", addend->extents(), out.extents());
    detail::require_shape("calm::layer_norm_back", "dy", grad_output.extents(), out.extents());
    detail::require_size("calm::layer_norm_back", "mean", mean.size(), out.extent(0));
    detail::require_size("calm::layer_norm_back", "dw", dw.size(), out.extent(1));
    detail::require_size("calm::layer_norm_back", "db", db.size(), out.extent(1));
    detail::norm_forward<detail::computed_of<DX>> const all{
        .x = x.data(), .w = w.data(), .mean = mean.data(), .r = r.data(), .rows = out.extent(0), .n = out.extent(1)};
    detail::with_rows_added(ctx, out, addend, [&](auto const*... added) {
        detail::run_layer_norm_back(ctx, out.data(), dw.data(), db.data(), grad_output.data(), all, added...);
    });
}

}  // namespace calm
