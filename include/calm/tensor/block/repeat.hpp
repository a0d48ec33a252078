#pragma once
// Rows that stand for several, in portable block form.

#include "calm/tensor/kernel.hpp"

namespace calm::detail {

// x (R N, width) = y (R, width), every row N times.
template <class T> struct repeat_kernel {
    static constexpr int threads = 256;
    struct shared {};
    T* x;
    T const* y;
    index_t n;  // elements of x
    index_t samples;
    index_t width;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i < n) x[i] = y[i / width / samples * width + i % width];
        });
    }
};

// y (R, width) = sums of N neighbouring rows of x (R N, width), in order.
template <class T> struct sum_repeated_kernel {
    static constexpr int threads = 256;
    struct shared {};
    T* y;
    T const* x;
    index_t n;  // elements of y
    index_t samples;
    index_t width;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i >= n) return;
            T sum{};
            for (index_t s = 0; s < samples; ++s) sum += x[(i / width * samples + s) * width + i % width];
            y[i] = sum;
        });
    }
};

template <block_executor Backend, class T>
void run_repeat_rows(context<Backend> const& ctx, T* x, T const* y, index_t rows, index_t samples, index_t width) {
    index_t const n = rows * samples * width;
    launch(ctx, blocks_for(n, 256), repeat_kernel<T>{x, y, n, samples, width});
}
template <block_executor Backend, class T>
void run_sum_repeated_rows(context<Backend> const& ctx, T* y, T const* x, index_t rows, index_t samples,
                           index_t width) {
    index_t const n = rows * width;
    launch(ctx, blocks_for(n, 256), sum_repeated_kernel<T>{y, x, n, samples, width});
}

}  // namespace calm::detail
