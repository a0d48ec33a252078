#pragma once
// Losses with one target per sample (flow matching, diffusion, margin): their settings, noise and targets. Sizes: R
// positions, N samples per position; sample n of position r is row r N + n.

#include <algorithm>

#include "calm/model/detail/heads/network_base.hpp"
#include "calm/model/detail/limits.hpp"
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

// Throws errc::usage if the number of samples is out of range.
inline void require_allowed(paired_objective const& o) {
    require(o.samples >= 1 && o.samples <= limits::samples, errc::usage, "calm::paired_objective: expected 1 to ",
            limits::samples, " samples per position, found ", o.samples);
}

// The base of the networks with such a loss.
template <model_configuration auto C, class Space, class Network>
struct paired_head : detail::head_network_base<C, Space, Network> {
    using network_base = detail::head_network_base<C, Space, Network>;
    using network_base::L, network_base::network_base;
    using typename network_base::T, typename network_base::Backend, typename network_base::inputs_type,
        typename network_base::latents;
    using noise_type = paired_noise<T, L, Backend>;  // for R N samples

    // The targets' eps use the same random stream as the energy score.
    noise_type draw_noise(context<Backend>& ctx, inputs_type const& in, paired_objective const& o,
                          rng_counter first) const {
        index_t const N = o.samples, count = in.hidden.extent(0) * N;
        auto const targets = ctx.saved.template take<T>(extents<dyn, L>(count));
        auto const samples = ctx.saved.template take<T>(extents<dyn, L>(count));
        auto const times = ctx.saved.template take<T>(extents<dyn>(count));
        fill_normal(ctx, targets, ctx.random(stream::target), first * N * L);
        fill_normal(ctx, samples, ctx.random(stream::head_noise), first * N * L);
        fill_uniform(ctx, times, ctx.random(stream::head_time), first * N);
        return {targets, samples, times};
    }

    // The targets (R N, L) = mean + exp(log_std) eps, N for each posterior. Result in ctx.saved.
    latents targets(context<Backend>& ctx, inputs_type const& in, noise_type const& noise) const {
        auto const& eps = noise.targets;
        auto const y = ctx.saved.template take<T>(eps.extents());
        arena_scope const scope(ctx.workspace);
        auto const spread = ctx.workspace.template take<T>(eps.extents());  // (R N, L)
        repeat_interleave(ctx, y, in.mean);
        repeat_interleave(ctx, spread, in.log_std);
        evaluate(ctx, y, y + exp(spread) * eps);
        return y;
    }
};

}  // namespace calm
