#pragma once
/// \file
/// Normalisation of rows with trained gains. Result: how a layer stores its output.
/// \shows{tests/nn/norm_test.cpp,a_layer_adds_its_own_eps}

#include "calm/nn/layer.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/norm.hpp"

namespace calm {

/// The number added under the root, as a template argument.
struct norm_eps {
    double value = 1e-6;  ///< rms_norm_eps of config.json
};

/// rms_norm on rows of width D with a trained gain.
template <index_t D, class Space = space<>, result_as Result = result_as::numbers, norm_eps Eps = norm_eps{}>
struct rms_norm_layer {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }  ///< no matrix products
    static constexpr double eps = Eps.value;                 ///< added under the root
    static constexpr bool adds_residual_backward = true;     ///< backward takes an addend

    param<extents<D>, Space> weight = make_param<extents<D>, Space>(role::gain);  ///< the gain w, (D)

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        matrix_view<T const, D, Backend> x;    ///< (R, D)
        result_rows<Result, T, D, Backend> y;  ///< (R, D)
        vector_view<T, dyn, Backend> r;        ///< (R)
    };

    /// y (R, D) of x (R, D).
    saved_activations forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        index_t const rows = x.extent(0);
        saved_activations const s{x, take_result<Result, T, D>(ctx, ctx.saved, rows),
                                  ctx.saved.template take<T>(extents<dyn>(rows))};
        with_numbers([&](auto const& y) { rms_norm(ctx, y, s.r, x, weight.read(), eps); }, s.y);
        return s;
    }

    /// Decoding on a device: returns x unnormalised, because the next layer's products normalise it as they read.
    rms_norm_prologue<T, D, Backend> extend(context<Backend>&, matrix_view<T const, D, Backend> const& x) const
        requires(Result == result_as::activations && device_memory<Backend>) {
        return {x, weight.read(), eps};
    }

    /// Overwrites dx (R, inputs) with the gradient plus the addend. Parameter gradients accumulate.
    void backward(context<Backend>& ctx, saved_activations const& s, activations<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx, addend<T, D, Backend> const& residual = {}) {
        with_numbers(
            [&](auto const& grad_output) {
                rms_norm_back(ctx, dx, weight.gradient(), grad_output, s.x, weight.read(), s.r, residual.rows);
            },
            dy);
    }

    template <class Visitor> void visit(Visitor& visitor) { visitor("weight", weight); }
};

/// layer_norm on rows of width D with a trained gain and bias.
template <index_t D, class Space = space<>, result_as Result = result_as::numbers> struct layer_norm_layer {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }  ///< no matrix products
    static constexpr double eps = 1e-6;                      ///< added under the root
    static constexpr bool adds_residual_backward = true;     ///< backward takes an addend

    param<extents<D>, Space> weight = make_param<extents<D>, Space>(role::gain);  ///< the gain w, (D)
    param<extents<D>, Space> bias = make_param<extents<D>, Space>(role::bias);    ///< b, (D)

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        matrix_view<T const, D, Backend> x;    ///< (R, D)
        result_rows<Result, T, D, Backend> y;  ///< (R, D)
        vector_view<T, dyn, Backend> mean;     ///< (R)
        vector_view<T, dyn, Backend> r;        ///< (R): 1 / standard deviation
    };

    /// y (R, D) of x (R, D).
    saved_activations forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        index_t const rows = x.extent(0);
        saved_activations const s{x, take_result<Result, T, D>(ctx, ctx.saved, rows),
                                  ctx.saved.template take<T>(extents<dyn>(rows)),
                                  ctx.saved.template take<T>(extents<dyn>(rows))};
        with_numbers([&](auto const& y) { layer_norm(ctx, y, s.mean, s.r, x, weight.read(), bias.read(), eps); }, s.y);
        return s;
    }

    /// Overwrites dx (R, inputs) with the gradient plus the addend. Parameter gradients accumulate.
    void backward(context<Backend>& ctx, saved_activations const& s, activations<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx, addend<T, D, Backend> const& residual = {}) {
        with_numbers(
            [&](auto const& grad_output) {
                layer_norm_back(ctx, dx, weight.gradient(), bias.gradient(), grad_output,
                                {.x = s.x, .w = weight.read(), .mean = s.mean, .r = s.r}, residual.rows);
            },
            dy);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visitor("weight", weight);
        visitor("bias", bias);
    }
};

/// layer_norm without affine parameters: (x - mean) / sqrt(variance + eps) over each row of width D, as one fused
/// expression.
template <index_t D, class Space = space<>> struct layer_norm_no_affine {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }                            ///< no matrix products
    static constexpr double eps = 1e-6;                                                ///< added under the root
    using saved_activations = typename layer_norm_layer<D, Space>::saved_activations;  ///< as layer_norm saves

    /// y (R, D) of x (R, D).
    saved_activations forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        index_t const rows = x.extent(0);
        saved_activations const s{x, ctx.saved.template take<T>(extents<dyn, D>(rows)),
                                  ctx.saved.template take<T>(extents<dyn>(rows)),
                                  ctx.saved.template take<T>(extents<dyn>(rows))};
        evaluate(ctx, s.y,
                 (x - tee(s.mean, mean_axis1(x))) *
                     tee(s.r, apply<op::reciprocal_root>(mean_square_axis1(x - column(s.mean)) + eps)));
        return s;
    }

    /// With h the normalised rows, dx = (dy - mean(dy) - h mean(dy h)) r.
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) const {
        auto const mean = column(s.mean);
        auto const r = column(s.r);
        evaluate(ctx, dx, (dy - mean_axis1(dy) - (s.x - mean) * r * mean_axis1(dy * ((s.x - mean) * r))) * r);
    }
    template <class Visitor> void visit(Visitor&) {}
};

}  // namespace calm
