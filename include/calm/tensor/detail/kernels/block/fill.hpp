#pragma once
// Random numbers as portable block kernels: each thread makes the four values of one Philox block.

#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"

namespace calm::detail {

template <class T> struct draw_normals {
    CALM_HD void operator()(philox_block const& words, T (&values)[4]) const {
        for (int pair = 0; pair < 2; ++pair) {
            double const radius = box_muller(words.v[2 * pair], words.v[2 * pair + 1]).radius;
            auto const [cosine, sine] = math::sin_cos_turns(static_cast<double>(words.v[2 * pair + 1]) * 0x1p-32);
            values[2 * pair] = static_cast<T>(radius * cosine);
            values[2 * pair + 1] = static_cast<T>(radius * sine);
        }
    }
};
template <class T> struct draw_uniforms {
    T low;
    CALM_HD void operator()(philox_block const& words, T (&values)[4]) const {
        for (int i = 0; i < 4; ++i) values[i] = static_cast<T>(uniform_from(words.v[i])) + low;
    }
};
template <class T> struct draw_kept {
    float rate;
    T value;
    CALM_HD void operator()(philox_block const& words, T (&values)[4]) const {
        for (int i = 0; i < 4; ++i) values[i] = uniform_from(words.v[i]) >= rate ? value : T{};
    }
};

// x[i] = element `number` + i of the keyed sequence; `draw` turns four words into four values.
template <class Draw, class T> struct draw_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Draw draw;
    T* x;
    index_t n;
    key k;
    rng_counter number;
    // Enough blocks for n values, wherever they begin.
    [[nodiscard]] CALM_HD static index_t blocks(index_t n) { return n > 0 ? blocks_for(n + 3, 4 * threads) : 0; }
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        std::uint64_t const first = number.now();
        b.phase([&](int t) {
            index_t const place = block * threads + t;
            index_t const begin = 4 * place - static_cast<index_t>(first % 4);
            if (begin >= n) return;
            T values[4];
            draw(philox(k, first / 4 + static_cast<std::uint64_t>(place)), values);
            for (int i = 0; i < 4; ++i)
                if (begin + i >= 0 && begin + i < n) x[begin + i] = values[i];
        });
    }
};

template <block_backend Backend, class Draw, class T>
void run_draw(context<Backend> const& ctx, Draw const& draw, T* x, index_t n, key k, rng_counter first) {
    using kernel = draw_kernel<Draw, T>;
    launch(ctx, kernel::blocks(n), kernel{draw, x, n, k, first});
}

}  // namespace calm::detail
