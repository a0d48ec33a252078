#pragma once
// Rotary embeddings in portable block form.

#include "calm/tensor/attention_shape.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm::detail {

// A thread turns one pair of every head of a row, in place.
template <class T> struct rotate_kernel {
    static constexpr int threads = 256;
    struct shared {};
    T* x;
    rotation to;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const half = to.head_size / 2;
            index_t const place = block * threads + t;
            if (place >= to.rows * half) return;
            index_t const row = place / half;
            index_t const i = place % half;
            auto const angle = to.at(to.first + row % to.period, i);
            auto const c = static_cast<T>(angle.cosine);
            auto const s = static_cast<T>(to.direction * static_cast<double>(angle.sine));
            for (index_t head = 0; head < to.width; head += to.head_size) {
                T* const a = x + row * to.width + head + i;
                T const u = a[0];
                T const w = a[half];
                a[0] = u * c - w * s;
                a[half] = w * c + u * s;
            }
        });
    }
};

template <block_executor Backend, class T> void run_rotate(context<Backend>& ctx, T* x, rotation const& to) {
    launch(ctx, blocks_for(to.rows * (to.head_size / 2), 256), rotate_kernel<T>{x, to});
}

}  // namespace calm::detail
