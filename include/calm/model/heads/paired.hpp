#pragma once
// Losses that pair every sample with a target of its own (flow matching, diffusion, margin): what they draw, and how
// they are trained on it. Sizes: R positions, N samples a position; samples of a position are neighbours, rows r N + n.

#include <algorithm>

#include "calm/model/head.hpp"
#include "calm/model/heads/at_once.hpp"
#include "calm/model/limits.hpp"
#include "calm/tensor/expr.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/repeat.hpp"
#include "calm/tensor/total.hpp"

namespace calm {

// Run-time settings of such a loss.
struct paired_objective {
    index_t samples = 8;  // N, each with its target; at least 1 and at most limits::samples

    // Names every number.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(number_field{.key = "num_samples",
                             .what = "samples a position with a target each, in the loss",
                             .least = 1,
                             .most = limits::samples,
                             .option = "samples"},
                self.samples);
    }
};

// What the loss draws for N samples of each of R positions.
template <class T, index_t L, class Backend = cpu> struct paired_noise {
    matrix_view<T const, L, Backend> targets;  // (R N, L), normal: eps of the targets mean + exp(log_std) eps
    matrix_view<T const, L, Backend> samples;  // (R N, L), normal: the samples' own noise
    vector_view<T const, dyn, Backend> times;  // (R N), uniform in [0, 1): how far along its path a sample is; heads
                                               // without a path have no use for it

    [[nodiscard]] index_t count() const { return targets.extent(0); }  // R N
    // What an element of R N L counts in the sum of R losses, each the mean of its own: 1 / (N L).
    [[nodiscard]] double weight(index_t positions) const {
        return static_cast<double>(positions) / static_cast<double>(std::max<index_t>(1, targets.size()));
    }
};

// That of `positions` positions of N samples, with keyed draws: number `first` of the step and those that follow, in
// ctx.saved. Targets draw as those of the energy score.
template <class T, index_t L, class Backend>
paired_noise<T, L, Backend> draw_paired_noise(context<Backend>& ctx, index_t positions, index_t N, draw_number first) {
    auto const targets = ctx.saved.template take<T>(extents<dyn, L>(positions * N));
    auto const samples = ctx.saved.template take<T>(extents<dyn, L>(positions * N));
    auto const times = ctx.saved.template take<T>(extents<dyn>(positions * N));
    fill_normal(ctx, targets, ctx.random(stream::target), first * N * L);
    fill_normal(ctx, samples, ctx.random(stream::head_noise), first * N * L);
    fill_uniform(ctx, times, ctx.random(stream::head_time), first * N);
    return {targets, samples, times};
}

// The targets (R N, L) = mean + exp(log_std) eps of posteriors (R, L), N of each, in ctx.saved.
template <class T, index_t L, class Backend>
matrix_view<T, L, Backend> paired_targets(context<Backend>& ctx, matrix_view<T const, L, Backend> const& mean,
                                          matrix_view<T const, L, Backend> const& log_std,
                                          matrix_view<T const, L, Backend> const& eps) {
    auto const y = ctx.saved.template take<T>(eps.extents());
    arena_scope const scope(ctx.scratch);
    auto const spread = ctx.scratch.template take<T>(eps.extents());  // (R N, L)
    repeat_rows(ctx, y, mean);
    repeat_rows(ctx, spread, log_std);
    evaluate(ctx, y, y + exp(spread) * eps);
    return y;
}

// total += the losses of R positions with keyed noise, from head.loss_and_gradient with given noise: position r draws
// as number first + r of the step. Works in chunks of positions that stay in the cache, and gives back what it takes of
// ctx.saved. Throws errc::usage for a number of samples that is not allowed.
template <class Head, class T, index_t L, index_t D, class Backend>
void train_paired(context<Backend>& ctx, total_view<Backend> const& total, Head& head,
                  matrix_view<T const, D, Backend> const& hidden, matrix_view<T const, L, Backend> const& mean,
                  matrix_view<T const, L, Backend> const& log_std, matrix_view<T, D, Backend> const& dhidden,
                  paired_objective const& o, draw_number first, double scale) {
    require(o.samples >= 1 && o.samples <= limits::samples, errc::usage, "calm::train_paired: expected 1 to ",
            limits::samples, " samples a position, found ", o.samples);
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
