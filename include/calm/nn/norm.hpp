#pragma once
// Normalisation of rows. Statistics are saved, not the normalised rows.

#include "calm/nn/param.hpp"
#include "calm/tensor/block/norm.hpp"
#include "calm/tensor/cpu/norm.hpp"

namespace calm {

// y (R, D) = x / sqrt(mean(x^2) + eps) * w (D); r (R) keeps the reciprocal roots. Zhang and Sennrich 2019.
template <class T, index_t D, class Backend>
void rms_norm(context<Backend>& ctx, matrix_view<T, D, Backend> const& y, vector_view<T, dyn, Backend> const& r,
              matrix_view<T const, D, Backend> const& x, view<T const, extents<D>, Backend> const& w, double eps) {
    detail::run_rms_norm(ctx, y.data(), r.data(), x.data(), w.data(), x.extent(0), x.extent(1), eps);
}

// rms_norm of rows of D with a trained gain.
template <index_t D, class T = float, class Backend = cpu> struct rms_norm_layer {
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double eps = 1e-6;  // under the root

    param<T, extents<D>, Backend> weight = make_param<T, extents<D>, Backend>(role::gain);  // the gain w, (D)

    struct saved {
        matrix_view<T const, D, Backend> x;  // (R, D)
        matrix_view<T, D, Backend> y;        // (R, D)
        vector_view<T, dyn, Backend> r;      // (R)
    };

    saved forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        index_t const rows = x.extent(0);
        saved const s{x, ctx.saved.template take<T>(extents<dyn, D>(rows)),
                      ctx.saved.template take<T>(extents<dyn>(rows))};
        rms_norm(ctx, s.y, s.r, x, weight.read(), eps);
        return s;
    }

    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        detail::run_rms_norm_back(ctx, dx.data(), weight.gradient().data(), dy.data(), s.x.data(), weight.read().data(),
                                  s.r.data(), s.x.extent(0), D);
    }

    template <class Visitor> void visit(Visitor& visitor) { visitor("weight", weight); }
};

// y = (x - mean) / sqrt(variance + eps) * w + b over a row of D. Ba, Kiros and Hinton 2016.
template <index_t D, class T = float, class Backend = cpu> struct layer_norm {
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double eps = 1e-6;  // under the root

    param<T, extents<D>, Backend> weight = make_param<T, extents<D>, Backend>(role::gain);  // the gain w, (D)
    param<T, extents<D>, Backend> bias = make_param<T, extents<D>, Backend>(role::bias);    // b, (D)

    struct saved {
        matrix_view<T const, D, Backend> x;  // (R, D)
        matrix_view<T, D, Backend> y;        // (R, D)
        vector_view<T, dyn, Backend> mean;   // (R)
        vector_view<T, dyn, Backend> r;      // (R): 1 / standard deviation
    };

    saved forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        index_t const rows = x.extent(0);
        saved const s{x, ctx.saved.template take<T>(extents<dyn, D>(rows)),
                      ctx.saved.template take<T>(extents<dyn>(rows)), ctx.saved.template take<T>(extents<dyn>(rows))};
        detail::run_layer_norm(ctx, s.y.data(), s.mean.data(), s.r.data(), x.data(), weight.read().data(),
                               bias.read().data(), rows, D, eps);
        return s;
    }

    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        detail::run_layer_norm_back(ctx, dx.data(), weight.gradient().data(), bias.gradient().data(), dy.data(),
                                    s.x.data(), weight.read().data(), s.mean.data(), s.r.data(), s.x.extent(0), D);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visitor("weight", weight);
        visitor("bias", bias);
    }
};

}  // namespace calm
