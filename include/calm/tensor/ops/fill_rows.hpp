#pragma once
/// \file
/// Random numbers for rows that each have their own RNG key and counter.
/// \shows{examples/07_head.hpp,guessing_head}

#include <algorithm>
#include <cstdint>

#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/kernels/block/fill_rows.hpp"
#include "calm/tensor/ops/fill.hpp"

namespace calm {

namespace detail {

template <class Draw, class T>
void run_draw_rows(context<cpu> const& ctx, Draw const& draw, T* x, index_t each, index_t W,
                   mirrored_span<row_rng, cpu> const& rngs, std::uint64_t seed_block) {
    for (auto const& [draws, first] : rngs.here) {
        key own = draws;
        if (seed_block != 0) own.seed_block = seed_block;
        run_draw(ctx, draw, x, each, own.by_value(), static_cast<std::uint64_t>(first) * static_cast<std::uint64_t>(W));
        x += each;
    }
}

}  // namespace detail

/// Normals for N samples of each of R rows: noise (R N, W). Draw i of a key uses its elements i W .. i W + W - 1;
/// `which` selects the key's own sequence or a substream.
template <class T, index_t W, class Backend>
void fill_normal(context<Backend> const& ctx, matrix_view<T, W, Backend> const& noise,
                 mirrored_span<row_rng, Backend> const& rngs, rng_substream which = rng_substream::of_row()) {
    index_t const each = noise.size() / std::max<index_t>(1, rngs.size());
    detail::run_draw_rows(ctx, detail::draw_normals<T>{}, noise.data(), each, W, rngs, which.seed_block);
}
/// noise (R N, W) = low + uniform, drawn like the normals above.
template <class T, index_t W, class Backend>
void fill_uniform(context<Backend> const& ctx, matrix_view<T, W, Backend> const& noise,
                  mirrored_span<row_rng, Backend> const& rngs, std::type_identity_t<T> low = T{},
                  rng_substream which = rng_substream::of_row()) {
    index_t const each = noise.size() / std::max<index_t>(1, rngs.size());
    detail::run_draw_rows(ctx, detail::draw_uniforms<T>{low}, noise.data(), each, W, rngs, which.seed_block);
}

}  // namespace calm
