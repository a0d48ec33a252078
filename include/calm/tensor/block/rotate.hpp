#pragma once
// Rotary embeddings in portable block form.

#include "calm/base/bf16.hpp"
#include "calm/tensor/attention_shape.hpp"
#include "calm/tensor/copy.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm::detail {

// A thread turns one of some pairs, first_pair .. first_pair + pairs, of every head of a row of x, in place, and of the
// same row of another matrix, whose width may be 0.
template <class T> struct rotate_kernel {
    static constexpr int threads = 256;
    static constexpr index_t most_pairs = 128;
    struct shared {};
    T* x;
    T* other;
    index_t other_width;
    rotation to;
    cached_sequence const* sequences;  // that go on, to.period rows each; null: all rows begin at to.first
    index_t first_pair, pairs;
    float frequencies[most_pairs];  // of the pairs

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const place = block * threads + t;
            if (place >= to.rows * pairs) return;
            index_t const row = place / pairs;
            index_t const i = place % pairs;
            index_t const first = sequences == nullptr ? to.first : sequences[row / to.period].length;
            auto const angle = rotation::at(first + row % to.period, frequencies[i]);
            auto const c = static_cast<computed_in<T>>(angle.cosine);
            auto const s = static_cast<computed_in<T>>(to.direction * static_cast<double>(angle.sine));
            auto const turn = [&](T* heads, index_t width) {
                for (index_t head = 0; head < width; head += to.head_size) {
                    T* const a = heads + row * width + head + first_pair + i;
                    computed_in<T> const u = a[0];
                    computed_in<T> const w = a[to.head_size / 2];
                    a[0] = static_cast<T>(u * c - w * s);
                    a[to.head_size / 2] = static_cast<T>(w * c + u * s);
                }
            };
            turn(x, to.width);
            turn(other, other_width);
        });
    }
};

// x, and the rows beside it of another matrix. The frequencies go with the kernel: nothing is copied to a device, and
// nothing waits.
template <block_executor Backend, class T>
void run_rotate(context<Backend>& ctx, T* x, T* other, index_t other_width, rotation const& to,
                cached_sequence const* sequences = nullptr) {
    using kernel = rotate_kernel<T>;
    index_t const half = to.head_size / 2;
    for (index_t first = 0; first < half; first += kernel::most_pairs) {
        kernel k{x, other, other_width, to, sequences, first, std::min(kernel::most_pairs, half - first), {}};
        for (index_t i = 0; i < k.pairs; ++i) k.frequencies[i] = to.frequency(first + i);
        launch(ctx, blocks_for(to.rows * k.pairs, kernel::threads), k);
    }
}
template <block_executor Backend, class T>
void run_rotate(context<Backend>& ctx, T* x, rotation const& to,
                on_both_sides<cached_sequence, Backend> sequences = {}) {
    run_rotate<Backend, T>(ctx, x, nullptr, 0, to, sequences.there);
}

}  // namespace calm::detail
