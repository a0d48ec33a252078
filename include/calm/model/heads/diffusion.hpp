#pragma once
/// \file
/// Denoising diffusion (Ho et al. 2020; Nichol and Dhariwal 2021; Diffusion in docs/mathematics/heads.md). A network
/// predicts the noise in a noisy target and the variance of the previous step; sampling starts from noise and removes
/// it step by step. Sizes: R positions, N samples per position; sample n of position r is row r N + n.
/// \shows{tests/model/heads_diffusion_test.cpp,a_diffusion_head_learns_which_latents_follow_a_hidden_state}

#include <cmath>
#include <span>
#include <string_view>

#include "calm/model/config.hpp"
#include "calm/model/detail/heads/adaln.hpp"
#include "calm/model/detail/heads/paired.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/flops.hpp"
#include "calm/tensor/ops/fill_rows.hpp"

namespace calm {

/// The signal variance remaining at a step (alpha bar) of the cosine schedule; 1 before step 0. The last step keeps a
/// thousandth, where the cosine would leave nothing.
CALM_HD inline double diffusion_signal(index_t step) {
    constexpr double quarter = 1.5707963267948966;
    auto const cosine = [&](index_t at) {
        return std::cos((static_cast<double>(at) / static_cast<double>(path_steps) + 0.008) / 1.008 * quarter);
    };
    bool const last = step == path_steps - 1;
    double const ratio = cosine(last ? step : step + 1) / cosine(0);
    return ratio * ratio * (last ? 0.001 : 1.0);
}

/// One reverse step, between the signal at the step and the signal before it.
struct diffusion_step {
    double signal;    ///< remaining at the step
    double noise;     ///< 1 - signal
    double beta;      ///< variance that the forward step adds
    double variance;  ///< posterior variance of the previous state, given target and state
    double range;     ///< log(beta / variance): the network interpolates between the two

    /// From the signal `before` the step (1 at the first step) to the signal `at` it.
    CALM_HD diffusion_step(double before, double at) :
        signal(at), noise(1 - at), beta(1 - at / before), variance(beta * (1 - before) / noise),
        range(std::log(beta / variance)) {}
};

namespace detail {

// Variance parameters of one training row at its step.
template <class T> struct diffusion_row {
    T range;  // range of the log variance
    T pull;   // shift of the mean for a noise error of 1, in standard deviations of the lower variance
    T bin;    // half a bin of the likelihood in those deviations; 0 except at step 0
};

// Computes, for steps (n), the rows (n) and the weights of target and noise in the state, root_signal and root_noise
// (n).
template <class T> struct diffusion_rows {
    diffusion_row<T>* rows;
    T* root_signal;
    T* root_noise;
    std::int32_t const* steps;
    CALM_HD void operator()(index_t i) const {
        index_t const step = steps[i];
        double const before = step > 0 ? diffusion_signal(step - 1) : 1.0;
        diffusion_step const s(before, diffusion_signal(step));
        // The posterior variance at step 0 is zero; step 1's is used instead.
        double const variance = step > 0 ? s.variance : diffusion_step(s.signal, diffusion_signal(1)).variance;
        double const pull = s.beta * std::sqrt(before / (s.noise * s.signal * variance));
        double const bin = step > 0 ? 0.0 : 1.0 / (255.0 * std::sqrt(variance));
        root_signal[i] = static_cast<T>(std::sqrt(s.signal));
        root_noise[i] = static_cast<T>(std::sqrt(s.noise));
        rows[i] = {static_cast<T>(std::log(s.beta / variance)), static_cast<T>(pull), static_cast<T>(bin)};
    }
};

// A value and its derivative.
template <class T> struct sloped {
    T value;
    T slope;
};

// KL term per element, in nats, and its derivative with respect to d, the log variance above the lower one. `gap` is
// the distance between the means in standard deviations of the lower variance.
template <class T> CALM_HD sloped<T> step_divergence(T gap, T d) {
    T const rest = (T(1) + gap * gap) * math::exp(-d);
    return {T(0.5) * (d - T(1) + rest), T(0.5) * (T(1) - rest)};
}
// Likelihood term at step 0: -log of the probability of the target's bin (half width `bin`), using the tanh
// approximation of the normal CDF. The end bins of [-1, 1] are open. Probabilities below 1e-12 are clamped, with zero
// derivative.
template <class T> CALM_HD sloped<T> bin_likelihood(T gap, T d, T bin, T target) {
    constexpr double root = 0.7978845608028654, cubic = 0.044715;  // the first is sqrt(2 / pi)
    T const narrow = math::exp(T(-0.5) * d);
    auto const cdf = [&](T u) -> sloped<T> {  // derivative by d; du/dd = -u / 2
        T const h = math::tanh(T(root) * (u + T(cubic) * u * u * u));
        return {T(0.5) * (T(1) + h), T(-0.25) * u * (T(1) - h * h) * T(root) * (T(1) + T(3 * cubic) * u * u)};
    };
    auto const upper = cdf(narrow * (gap + bin));
    auto const lower = cdf(narrow * (gap - bin));
    auto const is_below = [](T a, double b) { return math::where_greater(T(b), a, T(1), T(0)) == T(1); };
    sloped<T> p{upper.value - lower.value, upper.slope - lower.slope};
    if (is_below(target, -0.999)) p = upper;
    if (is_below(-target, -0.999)) p = {T(1) - lower.value, -lower.slope};
    if (is_below(p.value, 1e-12)) return {T(-std::log(1e-12)), T(0)};
    return {-math::log(p.value), -p.slope / p.value};
}

// bits (n) = the variational term per element; v (n) is replaced by the derivative with respect to v. Computed in
// double if T is float, because a bin is a difference of two probabilities; expressions would compute in T.
template <class T> struct variational_bits {
    T* bits;
    T* v;
    diffusion_row<T> const* rows;
    T const* noise;  // the true noise
    T const* guess;  // the network's prediction
    T const* targets;
    index_t width;
    CALM_HD void operator()(index_t i) const {
        using wide = typename accumulator<T>::type;
        auto const& row = rows[i / width];
        wide const gap = static_cast<wide>(row.pull) * (static_cast<wide>(guess[i]) - static_cast<wide>(noise[i]));
        wide const half = wide(0.5) * static_cast<wide>(row.range);
        wide const d = half * (static_cast<wide>(v[i]) + wide(1));
        auto const bin = static_cast<wide>(row.bin);
        auto const nats =
            row.bin == T(0) ? step_divergence(gap, d) : bin_likelihood(gap, d, bin, static_cast<wide>(targets[i]));
        constexpr double nats_in_a_bit = 0.6931471805599453;
        bits[i] = static_cast<T>(nats.value / wide(nats_in_a_bit));
        v[i] = static_cast<T>(nats.slope * half / wide(nats_in_a_bit));
    }
};

}  // namespace detail

/// The steps of sampling: evenly spaced, without those after `start`; a single step is `start` itself. The network runs
/// once per step.
/// Sampling starts from pure noise, so the signal at its first step must be small. A step from near-zero signal
/// multiplies every error of the network: by 347 from the published step 999 to 989, by 2 from 989 to 979. So the
/// default start is the last step with a signal of at least 1e-4.
struct diffusion_sampling {
    static constexpr index_t published_start = path_steps - 1;  ///< the last step

    index_t steps = 100;  ///< number of spaced steps, 1 to 1000
    index_t start = 992;  ///< 0 to 999

    /// The number of steps taken.
    [[nodiscard]] constexpr index_t count() const {
        index_t n = steps;
        while (n > 1 && spaced(n - 1) > start) --n;
        return n;
    }
    /// The training step of sampling step i < count().
    [[nodiscard]] constexpr std::int32_t trained_step(index_t i) const {
        return static_cast<std::int32_t>(steps == 1 ? start : spaced(i));
    }
    /// Reverse step i: to step i - 1, or to the target if i = 0.
    [[nodiscard]] diffusion_step step(index_t i) const {
        return {i > 0 ? diffusion_signal(trained_step(i - 1)) : 1.0, diffusion_signal(trained_step(i))};
    }
    /// Visits every field.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(detail::steps_field, self.steps);
        visitor(number_field{.key = "start",
                             .what = "noisiest of the 1000 steps, where a sample starts; 999 as published",
                             .least = 0,
                             .most = path_steps - 1,
                             .option = "start"},
                self.start);
    }

private:
    // Step i of all, evenly spaced from first to last; ties round to even.
    [[nodiscard]] constexpr index_t spaced(index_t i) const {
        double const exact =
            static_cast<double>(i) * (static_cast<double>(path_steps - 1) / static_cast<double>(steps - 1));
        auto const below = static_cast<index_t>(exact);
        double const rest = exact - static_cast<double>(below);
        return below + (rest > 0.5 || (rest == 0.5 && below % 2 == 1) ? 1 : 0);
    }
};

template <model_configuration auto C, class Space> struct diffusion_head;

/// The diffusion head: its size and names.
struct diffusion {
    index_t num_mlp_layers = 4;  ///< blocks

    static constexpr std::string_view name = "diffusion";                     ///< on command lines and in files
    static constexpr std::string_view architecture = "DiffusionTransformer";  ///< in files
    static constexpr std::string_view type = "calm::diffusion";               ///< C++ type name
    using objective = paired_objective;                                       ///< N
    using sampling = diffusion_sampling;                                      ///< steps and start of sampling
    /// The head's network.
    template <model_configuration auto C, class Space> using network = diffusion_head<C, Space>;

    /// FLOPs of the products.
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        return flops::adaln(at, 2, num_mlp_layers, diffusion_sampling{}.count());
    }
    /// Tensors of the network.
    void tensors(head_dimensions const& at, tensor_shapes& to) const {
        to.inside("net", [&] { detail::add_adaln_tensors(to, at, 2, num_mlp_layers); });
    }
    /// Visits every size.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(detail::size_field("num_mlp_layers", "blocks", limits::layers), self.num_mlp_layers);
    }
    friend constexpr bool operator==(diffusion const&, diffusion const&) = default;
};

/// Draws N samples of the next latent for each of R hidden states, starting from noise; the loss takes one step per
/// sample. The network is initialised to zero: it predicts zero noise and a variance between the two bounds.
template <model_configuration auto C, class Space = space<>>
struct diffusion_head : paired_head<C, Space, diffusion_head<C, Space>> {
    using base = paired_head<C, Space, diffusion_head>;  ///< types of the interface, loss in chunks, noise
    using base::D, base::L, base::base, base::loss_and_gradient;
    using typename base::T, typename base::Backend, typename base::inputs_type, typename base::gradients_type,
        typename base::objective, typename base::hidden_view, typename base::latents, typename base::noise_type;
    static constexpr std::size_t depth = static_cast<std::size_t>(C.head.num_mlp_layers);  ///< blocks
    /// Elements of memory per sample during training, in ctx.saved and ctx.workspace.
    static constexpr index_t numbers_per_sample = adaln_network<L, D, 2, depth, Space>::numbers_per_sample + 8 * L;

    adaln_network<L, D, 2, depth, Space> net;  ///< predicts noise and log variance
    diffusion_sampling sampling;               ///< settings of `sample`

    /// z (R N, L): draws N samples for every hidden state (R, D). The starting noise comes from `rngs` (R), one per
    /// row; sample i of a key uses its normals i L .. i L + L - 1. The noise that each step adds comes from the
    /// substream substream_key, times `scale`. Restores ctx.saved on return. Throws as denoise does.
    void sample(context<Backend>& ctx, latents const& z, inputs_type const& in, std::span<row_rng const> rngs,
                double scale = 1) const {
        arena_scope const of_places(ctx.workspace);
        auto const there = to_device(ctx, rngs);
        fill_normal(ctx, z, there);
        denoise(ctx, z, in.hidden, scale, [&](index_t i, latents const& noise) {
            fill_normal(ctx, noise, there, rng_substream::step(static_cast<std::uint32_t>(i)));
        });
    }

    /// Turns the noise z (R N, L) into samples for hidden states (R, D), in place. At step i, from sampling.count() - 1
    /// down to 1, fill(i, noise) provides the noise (R N, L) to add, times `scale`. Throws errc::usage if the number of
    /// steps or the start is out of range.
    template <class Fill>
    void denoise(context<Backend>& ctx, latents const& z, hidden_view const& hidden, double scale,
                 Fill const& fill) const {
        require(sampling.steps >= 1 && sampling.steps <= path_steps, errc::usage,
                "calm::diffusion_head: expected 1 to ", path_steps, " steps per sample, found ", sampling.steps);
        require(sampling.start >= 0 && sampling.start < path_steps, errc::usage,
                "calm::diffusion_head: expected a start of samples from 0 to ", path_steps - 1, ", found ",
                sampling.start);
        arena_scope const scope(ctx.saved);
        auto const prepared = net.prepare(ctx, hidden);
        for (index_t i = sampling.count(); i-- > 0;) {
            arena_scope const of_step(ctx.saved);
            auto const [guess, v] = net.at_step(ctx, z, sampling.trained_step(i), prepared);
            auto const step = sampling.step(i);
            double const kept = 1.0 / std::sqrt(1.0 - step.beta);
            evaluate(ctx, z, (z - guess * (step.beta / std::sqrt(step.noise))) * kept);
            if (i == 0) break;  // z is the sample: no noise is added
            auto const noise = ctx.saved.template take<T>(z.extents());
            fill(i, noise);
            double const middle = 0.5 * std::log(step.variance) + 0.25 * step.range;  // of the log standard deviation
            evaluate(ctx, z, z + exp(v * (0.25 * step.range) + middle) * noise * scale);
        }
    }

    /// With given noise. Each sample's loss is the mean over L of (noise - guess)^2 plus the variational term in bits,
    /// whose gradient reaches only the variance.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                           gradients_type const& out, objective const&, noise_type const& noise) {
        arena_scope const scope(ctx.saved);
        auto const target = this->targets(ctx, in, noise);
        auto const steps = ctx.saved.template take<std::int32_t>(extents<dyn>(noise.count()));
        auto const row_settings = ctx.saved.template take<detail::diffusion_row<T>>(extents<dyn>(noise.count()));
        auto const root_signal = ctx.saved.template take<T>(extents<dyn, 1>(noise.count()));
        auto const root_noise = ctx.saved.template take<T>(extents<dyn, 1>(noise.count()));
        auto const x = ctx.saved.template take<T>(target.extents());
        for_each(ctx, noise.count(), detail::path_steps_of<T>{steps.data(), noise.times.data()});
        for_each(ctx, noise.count(),
                 detail::diffusion_rows<T>{row_settings.data(), root_signal.data(), root_noise.data(), steps.data()});
        evaluate(ctx, x, column(root_signal) * target + column(root_noise) * noise.samples);
        auto const s = net.forward(ctx, x, steps, in.hidden);
        auto const& [guess, v] = s.y;
        auto const bits = ctx.saved.template take<T>(x.extents());
        for_each(ctx, x.size(),
                 detail::variational_bits<T>{bits.data(), v.data(), row_settings.data(), noise.samples.data(),
                                             guess.data(), target.data(), L});
        double const weight = noise.weight(in.hidden.extent(0));
        {
            arena_scope const of_sum(ctx.workspace);
            auto const both = new_total(ctx);
            add_sum(ctx, both, square(guess - noise.samples));
            add_sum(ctx, both, bits);
            add_total(ctx, total, both, weight);
        }
        if (out.wanted()) {
            differentiate_sum(ctx, square(wrt(guess, guess) - noise.samples), out.scale * weight);
            evaluate(ctx, v, v * (out.scale * weight));
            net.backward(ctx, s, s.y, out.dhidden);
        }
    }

    template <class Visitor> void visit(Visitor& visitor) { visit_as("net", net, visitor); }
};

}  // namespace calm
