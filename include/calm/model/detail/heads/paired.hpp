#pragma once
// Losses with one target per sample (flow matching, diffusion, margin): their noise and the training loop. Sizes: R
// positions, N samples per position; sample n of position r is row r N + n.

#include <algorithm>

#include "calm/model/detail/heads/at_once.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/head.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/repeat.hpp"
#include "calm/tensor/ops/total.hpp"

namespace calm {

// Run-time settings of such a loss.
struct paired_objective {
    index_t samples = 8;  // N, with one target each; at least 1 and at most limits::samples

    // Visits every field.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(number_field{.key = "num_samples",
                             .what = "samples per position with a target each, in the loss",
                             .least = 1,
                             .most = limits::samples,
                             .option = "samples"},
                self.samples);
    }
};

// Noise of the loss for N samples at each of R positions.
template <class T, index_t L, class Backend = cpu> struct paired_noise {
    matrix_view<T const, L, Backend> targets;  // (R N, L), normal: eps in mean + exp(log_std) eps
    matrix_view<T const, L, Backend> samples;  // (R N, L), normal: noise of the samples
    vector_view<T const, dyn, Backend> times;  // (R N), uniform in [0, 1): time on the path; not used by all heads

    [[nodiscard]] index_t count() const { return targets.extent(0); }  // R N
    // Weight of each of the R N L elements in the sum of R losses, each a mean over N L elements: 1 / (N L).
    [[nodiscard]] double weight(index_t positions) const {
        return static_cast<double>(positions) / static_cast<double>(std::max<index_t>(1, targets.size()));
    }
};

// Draws the noise of `positions` positions with N samples each, starting at position `first` of the step. Result in
// ctx.saved. The targets' eps use the same random stream as the energy score.
template <class T, index_t L, class Backend>
paired_noise<T, L, Backend> draw_paired_noise(context<Backend>& ctx, index_t positions, index_t N, rng_counter first) {
    auto const targets = ctx.saved.template take<T>(extents<dyn, L>(positions * N));
    auto const samples = ctx.saved.template take<T>(extents<dyn, L>(positions * N));
    auto const times = ctx.saved.template take<T>(extents<dyn>(positions * N));
    fill_normal(ctx, targets, ctx.random(stream::target), first * N * L);
    fill_normal(ctx, samples, ctx.random(stream::head_noise), first * N * L);
    fill_uniform(ctx, times, ctx.random(stream::head_time), first * N);
    return {targets, samples, times};
}

// The targets (R N, L) = mean + exp(log_std) eps, N for each of the posteriors (R, L). Result in ctx.saved.
template <class T, index_t L, class Backend>
matrix_view<T, L, Backend> paired_targets(context<Backend>& ctx, matrix_view<T const, L, Backend> const& mean,
                                          matrix_view<T const, L, Backend> const& log_std,
                                          matrix_view<T const, L, Backend> const& eps) {
    auto const y = ctx.saved.template take<T>(eps.extents());
    arena_scope const scope(ctx.workspace);
    auto const spread = ctx.workspace.template take<T>(eps.extents());  // (R N, L)
    repeat_interleave(ctx, y, mean);
    repeat_interleave(ctx, spread, log_std);
    evaluate(ctx, y, y + exp(spread) * eps);
    return y;
}

// total += the losses of R positions, by head.loss_and_gradient with keyed noise; position r has index first + r in the
// step. Runs in chunks of positions that fit into the cache, and restores ctx.saved on return. Throws errc::usage if
// the number of samples is out of range.
template <class Head, class T, index_t L, index_t D, class Backend>
void train_paired(context<Backend>& ctx, total_view<Backend> const& total, Head& head,
                  matrix_view<T const, D, Backend> const& hidden, matrix_view<T const, L, Backend> const& mean,
                  matrix_view<T const, L, Backend> const& log_std, matrix_view<T, D, Backend> const& dhidden,
                  paired_objective const& o, rng_counter first, double scale) {
    require(o.samples >= 1 && o.samples <= limits::samples, errc::usage, "calm::train_paired: expected 1 to ",
            limits::samples, " samples per position, found ", o.samples);
    index_t const chunk = positions_at_once<T>(ctx, o.samples, Head::numbers_per_sample);
    for (index_t r0 = 0; r0 < hidden.extent(0); r0 += chunk) {
        arena_scope const scope(ctx.saved);
        index_t const n = std::min(chunk, hidden.extent(0) - r0);
        head.loss_and_gradient(ctx, total, rows(hidden, r0, n), rows(mean, r0, n), rows(log_std, r0, n),
                               dhidden.data() == nullptr ? dhidden : rows(dhidden, r0, n),
                               draw_paired_noise<T, L>(ctx, n, o.samples, first + r0), scale);
    }
}

}  // namespace calm
