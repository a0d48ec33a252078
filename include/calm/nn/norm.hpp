#pragma once
// Normalisation of rows. Statistics are saved, not the normalised rows.

#include <cmath>

#include "calm/nn/param.hpp"

namespace calm {

namespace detail {

// A number of elements as a T, which may be complex.
template <class T> T number(index_t n) {
    return static_cast<T>(static_cast<double>(n));
}

template <class T> T reciprocal_root(T x) {
    return T{1} / math::sqrt(x);
}

// y (n) = x * r * w with r = 1 / sqrt(mean(x^2) + eps); returns r.
template <class T> T rms_norm_row(T* y, T const* x, T const* w, index_t n, double eps) {
    T const r = reciprocal_root(dot(x, x, n) / number<T>(n) + static_cast<T>(eps));
    for_packets<T>(0, n, [&]<class V>(index_t i) { store(y + i, load<V>(x + i) * splat<V>(r) * load<V>(w + i)); });
    return r;
}

// dx and, added to dw, the gain's gradient.
template <class T> void rms_norm_row_back(T* dx, T* dw, T const* dy, T const* x, T const* w, T r, index_t n) {
    T const s =
        sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(dy + i) * load<V>(w + i) * load<V>(x + i); });
    T const c = s * r * r * r / number<T>(n);
    for_packets<T>(0, n, [&]<class V>(index_t i) {
        V const g = load<V>(dy + i);
        V const v = load<V>(x + i);
        store(dw + i, load<V>(dw + i) + g * v * splat<V>(r));
        store(dx + i, g * load<V>(w + i) * splat<V>(r) - v * splat<V>(c));
    });
}

template <class T> struct moments {
    T mean;
    T r;  // 1 / standard deviation
};

template <class T> moments<T> layer_norm_row(T* y, T const* x, T const* w, T const* b, index_t n, double eps) {
    T const mean = sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(x + i); }) / number<T>(n);
    T const variance = sum_packets<T>(n,
                                      [&]<class V>(index_t i) -> V {
                                          V const d = load<V>(x + i) - splat<V>(mean);
                                          return d * d;
                                      }) /
                       number<T>(n);
    T const r = reciprocal_root(variance + static_cast<T>(eps));
    for_packets<T>(0, n, [&]<class V>(index_t i) {
        store(y + i, (load<V>(x + i) - splat<V>(mean)) * splat<V>(r) * load<V>(w + i) + load<V>(b + i));
    });
    return {mean, r};
}

template <class T>
void layer_norm_row_back(T* dx, T* dw, T* db, T const* dy, T const* x, T const* w, moments<T> m, index_t n) {
    auto const normal = [&]<class V>(index_t i) -> V { return (load<V>(x + i) - splat<V>(m.mean)) * splat<V>(m.r); };
    T const s = sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(dy + i) * load<V>(w + i); });
    T const t = sum_packets<T>(n, [&]<class V>(index_t i) -> V {
        return load<V>(dy + i) * load<V>(w + i) * normal.template operator()<V>(i);
    });
    T const a = s / number<T>(n);
    T const c = t / number<T>(n);
    for_packets<T>(0, n, [&]<class V>(index_t i) {
        V const g = load<V>(dy + i);
        V const h = normal.template operator()<V>(i);
        store(dw + i, load<V>(dw + i) + g * h);
        store(db + i, load<V>(db + i) + g);
        store(dx + i, (g * load<V>(w + i) - splat<V>(a) - h * splat<V>(c)) * splat<V>(m.r));
    });
}

// One block a row, in portable form: partial sums in shared memory, added up in a fixed tree.
template <class T> struct rms_norm_kernel {
    static constexpr int threads = 128;
    struct shared {
        T partial[threads];
    };
    T* y;
    T* r;
    T const* x;
    T const* w;
    index_t n;
    double eps;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t row) const {
        T const* const xr = x + row * n;
        b.phase([&](int t) {
            T a{};
            for (index_t i = t; i < n; i += threads) a += xr[i] * xr[i];
            s.partial[t] = a;
        });
        sum_tree<threads>(b, s.partial);
        b.phase([&](int t) {
            T const scale = T{1} / math::sqrt(s.partial[0] / static_cast<T>(n) + static_cast<T>(eps));
            if (t == 0) r[row] = scale;
            for (index_t i = t; i < n; i += threads) y[row * n + i] = xr[i] * scale * w[i];
        });
    }
};

}  // namespace detail

// y (R, D) = x / sqrt(mean(x^2) + eps) * w (D); r (R) keeps the reciprocal roots. Zhang and Sennrich 2019.
template <class T, index_t D>
void rms_norm(context<cpu>& ctx, matrix_view<T, D> const& y, vector_view<T> const& r, matrix_view<T const, D> const& x,
              view<T const, extents<D>> const& w, double eps) {
    index_t const n = x.extent(1);
    ctx.parallel_ranges(x.extent(0), 64, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            r[i] = detail::rms_norm_row(y.data() + i * n, x.data() + i * n, w.data(), n, eps);
    });
}
template <class T, index_t D>
void rms_norm(context<emulated>& ctx, matrix_view<T, D, emulated> const& y, vector_view<T, dyn, emulated> const& r,
              matrix_view<T const, D, emulated> const& x, view<T const, extents<D>, emulated> const& w, double eps) {
    launch(ctx, x.extent(0), detail::rms_norm_kernel<T>{y.data(), r.data(), x.data(), w.data(), x.extent(1), eps});
}

template <index_t D, class T = float, class Backend = cpu> struct rms_norm_layer {
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double eps = 1e-6;

    param<T, extents<D>, Backend> weight = make_param<T, extents<D>, Backend>(role::gain);

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
        detail::reduce_rows(ctx, s.x.extent(0), D, weight.gradient().data(), [&](index_t i, T* dw) {
            detail::rms_norm_row_back(dx.data() + i * D, dw, dy.data() + i * D, s.x.data() + i * D, weight.value.data(),
                                      s.r[i], D);
        });
    }

    template <class Visitor> void visit(Visitor& visitor) { visitor("weight", weight); }
};

// Affine layer normalisation, eps 1e-6. Ba, Kiros and Hinton 2016.
template <index_t D, class T = float, class Backend = cpu> struct layer_norm {
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double eps = 1e-6;

    param<T, extents<D>, Backend> weight = make_param<T, extents<D>, Backend>(role::gain);
    param<T, extents<D>, Backend> bias = make_param<T, extents<D>, Backend>(role::bias);

    struct saved {
        matrix_view<T const, D, Backend> x;                       // (R, D)
        matrix_view<T, D, Backend> y;                             // (R, D)
        view<detail::moments<T>, extents<dyn>, Backend> moments;  // (R)
    };

    saved forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        index_t const rows = x.extent(0);
        saved const s{x, ctx.saved.template take<T>(extents<dyn, D>(rows)),
                      ctx.saved.template take<detail::moments<T>>(extents<dyn>(rows))};
        ctx.parallel_ranges(rows, 64, [&](index_t begin, index_t end) {
            for (index_t i = begin; i < end; ++i)
                s.moments[i] = detail::layer_norm_row(s.y.data() + i * D, x.data() + i * D, weight.value.data(),
                                                      bias.value.data(), D, eps);
        });
        return s;
    }

    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        arena_scope const scope(ctx.scratch);
        auto const both = ctx.scratch.template take<T>(extents<2 * D>());  // dw, db
        fill(ctx, both, T{});
        detail::reduce_rows(ctx, s.x.extent(0), 2 * D, both.data(), [&](index_t i, T* d) {
            detail::layer_norm_row_back(dx.data() + i * D, d, d + D, dy.data() + i * D, s.x.data() + i * D,
                                        weight.value.data(), s.moments[i], D);
        });
        auto const dw = weight.gradient();
        auto const db = bias.gradient();
        if (ctx.rehearsing()) return;
        detail::add_into(dw.data(), both.data(), D);
        detail::add_into(db.data(), both.data() + D, D);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visitor("weight", weight);
        visitor("bias", bias);
    }
};

}  // namespace calm
