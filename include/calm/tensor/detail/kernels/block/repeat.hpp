#pragma once
// Repeated rows as portable block kernels: one block per distinct row. A device may store them in bf16.

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/kernel.hpp"

namespace calm::detail {

inline constexpr int repeat_threads = 128;

// x (R N, width) = y (R, width), every row N times.
template <class X, class Y> struct repeat_kernel {
    static constexpr int threads = repeat_threads;
    struct shared {};
    X* x;
    Y const* y;
    index_t samples;
    index_t width;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        b.phase([&](int t) {
            for_groups<Block, computed_in<Y>>(t, 0, width, [&]<class V>(index_t j) {
                V const value = load<V>(y + row * width + j);
                for (index_t s = 0; s < samples; ++s) store(x + (row * samples + s) * width + j, value);
            });
        });
    }
};

// y (R, width) = sums of N neighbouring rows of x (R N, width), in order.
template <class Y, class X> struct sum_repeated_kernel {
    static constexpr int threads = repeat_threads;
    struct shared {};
    Y* y;
    X const* x;
    index_t samples;
    index_t width;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        b.phase([&](int t) {
            for_groups<Block, computed_in<X>>(t, 0, width, [&]<class V>(index_t j) {
                V sum{};
                for (index_t s = 0; s < samples; ++s) sum += load<V>(x + (row * samples + s) * width + j);
                store(y + row * width + j, sum);
            });
        });
    }
};

template <block_backend Backend, class X, class Y>
void run_repeat_interleave(context<Backend> const& ctx, X* x, Y const* y, index_t rows, index_t samples,
                           index_t width) {
    launch(ctx, rows, repeat_kernel<X, Y>{x, y, samples, width});
}
template <block_backend Backend, class Y, class X>
void run_segment_sum(context<Backend> const& ctx, Y* y, X const* x, index_t rows, index_t samples, index_t width) {
    launch(ctx, rows, sum_repeated_kernel<Y, X>{y, x, samples, width});
}

}  // namespace calm::detail
