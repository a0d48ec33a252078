#pragma once
// Which noise a head's samples get.

#include <algorithm>
#include <cstdint>

#include "calm/base/random.hpp"
#include "calm/tensor/copy.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// Of the samples of one row, a hidden state: sample n draws as number first + n of `draws`. So the rows of a batch can
// belong to different texts, and a sample is the same whatever is drawn beside it.
struct noise_place {
    key draws;          // seed, stream and step of the text's samples
    index_t first = 0;  // number of the row's sample 0
};

namespace detail {
// The block of a key's sequence that is the seed of the sequence of a step: so far from the end.
CALM_HD constexpr std::uint64_t block_of_step(std::uint32_t step) {
    return ~std::uint64_t{step};
}
}  // namespace detail

// A sequence of its own for a step on the way of the same samples, whose number is below 2^32: its seed is the block so
// far from the end of the key's sequence, of the step of the run that kernels see.
CALM_HD constexpr key key_of_step(key draws, std::uint32_t step) {
    draws.seed_block = detail::block_of_step(step);
    return draws.live_step == nullptr ? draws.by_value() : draws;
}

namespace detail {

// x (R, each) = what `draw` makes of the keys of R places, of their own sequences or of those of `seed_block`, from
// number first W on. A block has a part of one place.
template <class Draw, class T> struct draw_places_kernel {
    static constexpr int threads = draw_kernel<Draw, T>::threads;
    using shared = typename draw_kernel<Draw, T>::shared;
    Draw draw;
    T* x;
    noise_place const* places;
    index_t each, W;
    std::uint64_t seed_block;
    [[nodiscard]] CALM_HD index_t blocks() const { return draw_kernel<Draw, T>::blocks(each); }
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        index_t const r = block / blocks();
        noise_place place = places[r];
        if (seed_block != 0) place.draws.seed_block = seed_block;
        auto const first = static_cast<std::uint64_t>(place.first) * static_cast<std::uint64_t>(W);
        draw_kernel<Draw, T>{draw, x + r * each, each, place.draws.now(), first}(b, s, block % blocks());
    }
};

template <block_executor Backend, class Draw, class T>
void run_draw_places(context<Backend> const& ctx, Draw const& draw, T* x, index_t each, index_t W,
                     on_both_sides<noise_place, Backend> const& places, std::uint64_t seed_block) {
    draw_places_kernel<Draw, T> const kernel{draw, x, places.there, each, W, seed_block};
    launch(ctx, places.size() * kernel.blocks(), kernel);
}
template <class Draw, class T>
void run_draw_places(context<cpu> const& ctx, Draw const& draw, T* x, index_t each, index_t W,
                     on_both_sides<noise_place, cpu> const& places, std::uint64_t seed_block) {
    for (auto const& [draws, first] : places.here) {
        key own = draws;
        if (seed_block != 0) own.seed_block = seed_block;
        run_draw(ctx, draw, x, each, own.by_value(), static_cast<std::uint64_t>(first) * static_cast<std::uint64_t>(W));
        x += each;
    }
}

}  // namespace detail

// Which sequence of a place's key: its own, or that of key_of_step.
struct sequence_of {
    std::uint64_t seed_block = 0;  // of the sequence; 0: it is the key's own

    // The key's own.
    static constexpr sequence_of place() { return {}; }
    // That of a step on the way of the samples.
    static constexpr sequence_of step(std::uint32_t number) { return {detail::block_of_step(number)}; }
};

// noise (R N, W), for N samples of each of R places: normals. Number i of a key is its elements i W .. i W + W - 1.
template <class T, index_t W, class Backend>
void fill_normal(context<Backend> const& ctx, matrix_view<T, W, Backend> const& noise,
                 on_both_sides<noise_place, Backend> const& places, sequence_of which = sequence_of::place()) {
    index_t const each = noise.size() / std::max<index_t>(1, places.size());
    detail::run_draw_places(ctx, detail::draw_normals<T>{}, noise.data(), each, W, places, which.seed_block);
}
// The same, low + uniform.
template <class T, index_t W, class Backend>
void fill_uniform(context<Backend> const& ctx, matrix_view<T, W, Backend> const& noise,
                  on_both_sides<noise_place, Backend> const& places, std::type_identity_t<T> low = T{},
                  sequence_of which = sequence_of::place()) {
    index_t const each = noise.size() / std::max<index_t>(1, places.size());
    detail::run_draw_places(ctx, detail::draw_uniforms<T>{low}, noise.data(), each, W, places, which.seed_block);
}

}  // namespace calm
