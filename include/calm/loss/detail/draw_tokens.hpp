#pragma once
// Samples tokens from softmax(x E^T), any number per row. The logits of each row are computed once, and each sample is
// a binary search in the cumulative sums of the probabilities. A vocabulary of several chunks takes two passes: the
// first picks a chunk for every sample, the second recomputes the logits chunk by chunk.

#include <cmath>

#include "calm/loss/cross_entropy.hpp"
#include "calm/loss/detail/block/draw_tokens.hpp"
#include "calm/tensor/detail/core/for_each.hpp"

namespace calm {

namespace detail {

// CPU implementation of run_running_sums (for block backends: loss/detail/block/draw_tokens.hpp).
template <class T>
void run_running_sums(context<cpu> const& ctx, chunk_total<T>* totals, index_t stride, vocabulary_part<T> const& z) {
    ctx.parallel_ranges(z.rows, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            T* const row = z.logits + i * z.stride;
            auto const highest = static_cast<T>(largest(row, z.width));
            for_pieces<T>(0, z.width,
                          [&]<class V>(index_t j) { store(row + j, math::exp(load<V>(row + j) - splat<V>(highest))); });
            double sum = 0;
            for (index_t j = 0; j < z.width; ++j) row[j] = static_cast<T>(sum += static_cast<double>(row[j]));
            totals[i * stride] = {highest, row[z.width - 1]};
        }
    });
}

}  // namespace detail

// Samples token k of N patches for each of R rows; tokens (R N, K), flat. A token is drawn from the softmax of its row
// of x (R, D) times the table E (V, D). It is the inverse of the CDF at its element of uniforms (R N, K), in [0, 1).
// Types: float or double; a table of bf16 goes with float. Throws errc::usage if the sizes do not match.
template <class T, class W, index_t D, index_t K, class Backend>
void draw_tokens(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens, index_t k,
                 matrix_view<T const, D, Backend> const& x, matrix_view<W const, D, Backend> const& table,
                 matrix_view<T const, K, Backend> const& uniforms) {
    index_t const vocabulary = table.extent(0);
    index_t const N = uniforms.extent(0) / std::max<index_t>(1, x.extent(0));
    require(vocabulary > 0, errc::usage, "calm::draw_tokens: the vocabulary is empty");
    require(k >= 0 && k < K && uniforms.extent(0) == N * x.extent(0) && tokens.size() == uniforms.size(), errc::usage,
            "calm::draw_tokens: expected token 0 to ", K - 1, " of patches of ", K,
            " tokens, equally many patches per row and one uniform number per token, found token ", k, ", ",
            x.extent(0), " rows, ", tokens.size(), " tokens and ", uniforms.size(), " numbers");
    arena_scope const scope(ctx.workspace);
    auto const at_once = detail::logits_at_once::of<T>(ctx, x.extent(0), vocabulary);
    index_t const block = at_once.rows, width = at_once.width;
    index_t const chunks = detail::blocks_for(vocabulary, width);
    auto const logits = ctx.workspace.template take<T>(extents<dyn, dyn>(block, width));
    auto const totals = ctx.workspace.template take<detail::chunk_total<T>>(extents<dyn>(block * chunks));
    auto const places = ctx.workspace.template take<detail::drawn_place>(extents<dyn>(block * N));
    for (index_t r0 = 0; r0 < x.extent(0); r0 += block) {
        index_t const n = std::min(block, x.extent(0) - r0);
        detail::draw_numbers const number{r0, N, K, k};
        auto const sums_of = [&](index_t c) {
            index_t const v0 = c * width;
            detail::vocabulary_part<T> const z{logits.data(), n, std::min(width, vocabulary - v0), v0};
            matmul(ctx, detail::logits_of<Backend>(z), rows(x, r0, n), transposed(rows(table, v0, z.width)));
            detail::run_running_sums(ctx, totals.data() + c, chunks, z);
            return z;
        };
        detail::vocabulary_part<T> z{};
        for (index_t c = 0; c < chunks; ++c) z = sums_of(c);
        for_each(ctx, n * N, detail::choose_chunk<T>{places.data(), uniforms.data(), totals.data(), chunks, number});
        for (index_t c = 0; c < chunks; ++c) {
            if (chunks > 1) z = sums_of(c);  // a single chunk is still in memory
            for_each(ctx, n * N, detail::choose_token<T>{tokens.data(), places.data(), z, c, number});
        }
    }
}

}  // namespace calm
