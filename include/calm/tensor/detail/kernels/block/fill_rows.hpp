#pragma once
// Random numbers of rows with their own keys as portable block kernels: one launch draws all rows.

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/core/row_rng.hpp"
#include "calm/tensor/detail/kernels/block/fill.hpp"

namespace calm::detail {

// x (R, each): values that `draw` makes of the keys of rngs (R), from number rngs[r].first * W on. A nonzero
// seed_block selects that substream of each key. A block has a part of one row.
template <class Draw, class T> struct draw_rows_kernel {
    static constexpr int threads = draw_kernel<Draw, T>::threads;
    using shared = typename draw_kernel<Draw, T>::shared;
    Draw draw;
    T* x;
    row_rng const* rngs;
    index_t each, W;
    std::uint64_t seed_block;
    [[nodiscard]] CALM_HD index_t blocks() const { return draw_kernel<Draw, T>::blocks(each); }
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        index_t const r = block / blocks();
        row_rng rng = rngs[r];
        if (seed_block != 0) rng.draws.seed_block = seed_block;
        auto const first = static_cast<std::uint64_t>(rng.first) * static_cast<std::uint64_t>(W);
        draw_kernel<Draw, T>{draw, x + r * each, each, rng.draws.now(), first}(b, s, block % blocks());
    }
};

template <block_backend Backend, class Draw, class T>
void run_draw_rows(context<Backend> const& ctx, Draw const& draw, T* x, index_t each, index_t W,
                   mirrored_span<row_rng, Backend> const& rngs, std::uint64_t seed_block) {
    draw_rows_kernel<Draw, T> const kernel{draw, x, rngs.there, each, W, seed_block};
    launch(ctx, rngs.size() * kernel.blocks(), kernel);
}
}  // namespace calm::detail
