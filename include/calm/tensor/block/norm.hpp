#pragma once
// Normalisation of rows in portable block form: a block a row; gradients of what all rows share by columns. Trees that
// read the mean and the root that forward kept would be as many launches (bench/norms.cpp has them, nn/norm.hpp that of
// a norm without gain). LayerNorm's backward is a kernel because it adds up both of its sums in one pass over a row,
// where a tree makes one for each reduction; the other two would make as many passes as here, and stand because nobody
// has measured their trees on a GPU.

#include "calm/tensor/block/rows.hpp"
#include "calm/tensor/math.hpp"

namespace calm::detail {

inline constexpr int norm_threads = 128;

// dx = dy w r - x r^3 mean(dy w x).
template <class T> struct rms_norm_back_kernel {
    static constexpr int threads = norm_threads;
    struct shared {};
    T* dx;
    T const* dy;
    T const* x;
    T const* w;
    T const* r;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        index_t const first = row * n;
        T const along = sum_terms(b, 0, n, [&](index_t i) { return dy[first + i] * w[i] * x[first + i]; });
        b.phase([&](int t) {
            T const scale = r[row];
            T const c = along * scale * scale * scale / static_cast<T>(n);
            for (index_t i = t; i < n; i += threads) dx[first + i] = dy[first + i] * w[i] * scale - x[first + i] * c;
        });
    }
};

// y = (x - mean) * r * w + b with r = 1 / sqrt(variance + eps); y may be stored in another type.
template <class T, class Y> struct layer_norm_kernel {
    static constexpr int threads = norm_threads;
    struct shared {};
    Y* y;
    T* mean;
    T* r;
    T const* x;
    T const* w;
    T const* bias;
    index_t n;
    double eps;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        T const* const xr = x + row * n;
        T const middle = sum_terms(b, 0, n, [&](index_t i) { return xr[i]; }) / static_cast<T>(n);
        T const squares = sum_terms(b, 0, n, [&](index_t i) { return (xr[i] - middle) * (xr[i] - middle); });
        b.phase([&](int t) {
            T const scale = T{1} / math::sqrt(squares / static_cast<T>(n) + static_cast<T>(eps));
            if (t == 0) {
                mean[row] = middle;
                r[row] = scale;
            }
            for (index_t i = t; i < n; i += threads)
                y[row * n + i] = static_cast<Y>((xr[i] - middle) * scale * w[i] + bias[i]);
        });
    }
};

// With h = (x - mean) r: dx = (dy w - mean(dy w) - h mean(dy w h)) r.
template <class T> struct layer_norm_back_kernel {
    static constexpr int threads = norm_threads;
    struct shared {};
    struct both {
        T sum;      // of dy w
        T product;  // of dy w h
    };
    T* dx;
    T const* dy;
    T const* x;
    T const* w;
    T const* mean;
    T const* r;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        index_t const first = row * n;
        typename Block::template per_thread<both> partial;
        b.phase([&](int t) {
            T sum{};
            T product{};
            for (index_t i = t; i < n; i += threads) {
                T const g = dy[first + i] * w[i];
                sum += g;
                product += g * ((x[first + i] - mean[row]) * r[row]);
            }
            partial[t] = {sum, product};
        });
        both const total = b.fold(partial, [](both u, both v) { return both{u.sum + v.sum, u.product + v.product}; });
        b.phase([&](int t) {
            T const a = total.sum / static_cast<T>(n);
            T const c = total.product / static_cast<T>(n);
            for (index_t i = t; i < n; i += threads) {
                T const h = (x[first + i] - mean[row]) * r[row];
                dx[first + i] = (dy[first + i] * w[i] - a - h * c) * r[row];
            }
        });
    }
};

// What a row adds to the gradient of a gain: dy (x - mean) r, or, where mean is null, dy x r.
template <class T> struct gain_term {
    T const* dy;
    T const* x;
    T const* mean;
    T const* r;
    index_t width;
    CALM_HD T operator()(index_t row, index_t j) const {
        index_t const at = row * width + j;
        return dy[at] * ((mean != nullptr ? x[at] - mean[row] : x[at]) * r[row]);
    }
};

// The gain's gradient first: dx may take the place of dy or x.
template <block_executor Backend, class T>
void run_rms_norm_back(context<Backend>& ctx, T* dx, T* dw, T const* dy, T const* x, T const* w, T const* r,
                       index_t rows, index_t n) {
    run_row_sums(ctx, dw, rows, n, gain_term<T>{dy, x, nullptr, r, n});
    launch(ctx, rows, rms_norm_back_kernel<T>{dx, dy, x, w, r, n});
}
template <block_executor Backend, class Y, class T>
void run_layer_norm(context<Backend>& ctx, Y* y, T* mean, T* r, T const* x, T const* w, T const* b, index_t rows,
                    index_t n, double eps) {
    launch(ctx, rows, layer_norm_kernel<T, Y>{y, mean, r, x, w, b, n, eps});
}
template <block_executor Backend, class T>
void run_layer_norm_back(context<Backend>& ctx, T* dx, T* dw, T* db, T const* dy, T const* x, T const* w, T const* mean,
                         T const* r, index_t rows, index_t n) {
    run_row_sums(ctx, dw, rows, n, gain_term<T>{dy, x, mean, r, n});
    run_add_row_sums(ctx, db, dy, rows, n);
    launch(ctx, rows, layer_norm_back_kernel<T>{dx, dy, x, w, mean, r, n});
}

}  // namespace calm::detail
