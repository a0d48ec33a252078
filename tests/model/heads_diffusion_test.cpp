#include <boost/mpl/transform.hpp>

#include <array>
#include <set>

#include "calm/model/calm.hpp"
#include "calm/model/heads/diffusion.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/train/optimizer.hpp"
#include "support/heads.hpp"
#include "support/statistics.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class Variant> struct diffusion_variant {
    static constexpr configuration<diffusion> value =
        with_head(Variant::value, diffusion{.num_mlp_layers = Variant::value.head.num_mlp_layers});
    static char const* name() { return variant_name<Variant::value>(); }
    using backend = typename Variant::backend;
};
using diffusion_variants = boost::mpl::transform<variants_on_devices, diffusion_variant<boost::mpl::_1>>::type;

constexpr configuration<diffusion> small_diffusion = with_head(uneven, diffusion{.num_mlp_layers = 2});
template <class T> using checked_diffusion = diffusion_head<small_diffusion, space<cpu, T>>;
template <class On>
using diffusion_on = diffusion_head<small_diffusion, space<typename On::backend, typename On::scalar>>;

// The published diffusion process: from a list of betas, by products, at the kept steps out of 1000.
struct published {
    std::vector<double> a, before, beta, variance;

    explicit published(std::vector<int> const& kept) {
        auto const bar = [](double u) {
            double const c = std::cos((u + 0.008) / 1.008 * std::acos(-1.0) / 2);
            return c * c;
        };
        std::vector<double> left;
        for (int i = 0; i < 1000; ++i)
            left.push_back((i > 0 ? left.back() : 1.0) *
                           (1 - std::min(1 - bar((i + 1) / 1000.0) / bar(i / 1000.0), 0.999)));
        for (int const i : kept) {
            before.push_back(a.empty() ? 1.0 : a.back());
            a.push_back(left[static_cast<std::size_t>(i)]);
            beta.push_back(1 - a.back() / before.back());
            variance.push_back(beta.back() * (1 - before.back()) / (1 - a.back()));
        }
        variance[0] = variance.size() > 1 ? variance[1] : 0.0;
    }
    static std::vector<int> all() {
        std::vector<int> steps(1000);
        for (int i = 0; i < 1000; ++i) steps[static_cast<std::size_t>(i)] = i;
        return steps;
    }
    [[nodiscard]] double c1(std::size_t t) const { return beta[t] * std::sqrt(before[t]) / (1 - a[t]); }
    [[nodiscard]] double c2(std::size_t t) const { return (1 - before[t]) * std::sqrt(1 - beta[t]) / (1 - a[t]); }
};

// The mean implied by a noise prediction, and the log variance for v.
template <class T> T mean_of(published const& p, std::size_t t, T x, T guess) {
    T const target = std::sqrt(1 / p.a[t]) * x - std::sqrt(1 / p.a[t] - 1) * guess;
    return p.c1(t) * target + p.c2(t) * x;
}
template <class T> T log_variance(published const& p, std::size_t t, T v) {
    T const share = (v + 1.0) / 2.0;
    return share * std::log(p.beta[t]) + (1.0 - share) * std::log(p.variance[t]);
}

// The published variational term of one element, in nats.
complex divergence(published const& p, std::size_t t, complex target, complex x, complex guess, complex v) {
    complex const lower = std::log(p.variance[t]), log_var = log_variance(p, t, v);
    complex const mean = mean_of(p, t, x, guess);
    if (t > 0) {
        complex const gap = p.c1(t) * target + p.c2(t) * x - mean;
        return 0.5 * (-1.0 + log_var - lower + std::exp(lower - log_var) + gap * gap * std::exp(-log_var));
    }
    auto const cdf = [](complex u) {
        return 0.5 * (1.0 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (u + 0.044715 * u * u * u)));
    };
    complex const narrow = std::exp(-0.5 * log_var), c = target - mean;
    complex const upper = cdf(narrow * (c + 1 / 255.0)), lower_tail = cdf(narrow * (c - 1 / 255.0));
    complex const probability = target.real() < -0.999  ? upper
                                : target.real() > 0.999 ? 1.0 - lower_tail
                                                        : upper - lower_tail;
    return -std::log(probability.real() < 1e-12 ? complex(1e-12) : probability);
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_diffusion_head_agrees_with_the_reference, variant, diffusion_variants) {
    using backend = typename variant::backend;
    using head = diffusion_head<variant::value, space<backend>>;
    constexpr index_t D = head::D, L = head::L;
    fixture const f(variant::name(), "head_diffusion");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    head model;
    allocate(model, values, &gradients);
    load_parameters(parameters_of(model), f);
    model.sampling.start = diffusion_sampling::published_start;

    auto const hidden = placed<backend>(f.floats("in/hidden"));
    index_t const R = f.shape("in/hidden")[0];
    auto const eps = placed<backend>(f.floats("in/eps"));
    std::vector<float> times;
    for (auto const t : f.integers("in/t")) times.push_back(static_cast<float>((static_cast<double>(t) + 0.5) / 1000));
    own_noise<float, L, backend> const noise{numbers<float, backend>(eps.size()), eps, times};
    // Row 0, at step 0, is a difference of nearly equal probabilities; computed in double it is as accurate as the
    // others.
    check_training(ctx, model, f, noise);

    auto const noises = f.floats("in/noises");
    for (auto const& [scale, name] : {std::pair{1.0, "out/sampled"}, {0.5, "out/sampled_cool"}}) {
        auto z = eps;
        model.denoise(ctx, out_rows<backend, L>(z), in_rows<backend, D>(hidden), scale,
                      [&](index_t i, auto const& added) {
                          host_access const access;
                          std::copy_n(noises.begin() + i * R * L, R * L, added.data());
                      });
        auto const expected = f.floats<double>(name);
        double largest = 0;  // random weights give large values
        for (double const value : expected) largest = std::max(largest, std::abs(value));
        BOOST_TEST(close_to(std::span<float const>(copied(z)), std::span<double const>(expected), 1e-5 * largest, 1e-5),
                   name);
    }
}

// Two hidden states, each followed by latents near its own point: after training, samples lie near these points.
BOOST_AUTO_TEST_CASE(a_diffusion_head_learns_which_latents_follow_a_hidden_state) {
    constexpr configuration<diffusion> mine{
        .autoencoder = {.latent_size = 2}, .hidden_size = 16, .head = {.num_mlp_layers = 1}};
    constexpr index_t R = 2, D = 16, L = 2;
    context<> ctx(1);                            // seed
    owned_model<diffusion_head<mine>> own(100);  // for 100 token ids
    auto& head = own.model;
    initialise(ctx, head);
    adamw optimizer(head, {.weight_decay = 0});

    tensor<float, extents<R, D>> hidden, dhidden;
    tensor<float, extents<R, L>> mean, log_std;  // of the latents
    fill_normal(ctx, hidden.view(), key{1});
    fill(ctx, log_std.view(), std::log(0.1F));
    mean(0, 0) = 1, mean(1, 1) = -1;
    for (ctx.step = 0; ctx.step < 300; ++ctx.step) {  // other noise in every step
        double const loss = total_of(ctx, [&](auto const& total) {
            head.loss_and_gradient(ctx, total, {.hidden = hidden, .mean = mean, .log_std = log_std},
                                   {.dhidden = dhidden, .scale = 1.0 / R}, {.samples = 32}, 0);
        });
        optimizer.step(ctx, 0.01, loss / R);
    }

    constexpr index_t N = 100;  // samples of each state
    head.sampling.steps = 50;
    tensor<float, extents<R * N, L>> z;
    std::vector<row_rng> const rngs{{{.seed = 1}, 0}, {{.seed = 1}, N}};  // samples 0 .. N - 1 and N .. 2 N - 1
    head.sample(ctx, z, {.hidden = hidden}, rngs);
    double squares = 0;
    for (index_t i = 0; i < R * N; ++i)
        for (index_t l = 0; l < L; ++l) squares += std::pow(z(i, l) - mean(i / N, l), 2);
    double const apart = std::sqrt(squares / (R * N * L));  // 0.1 for perfect samples
    BOOST_TEST((apart > 0.05 && apart < 0.2), apart);
}

BOOST_AUTO_TEST_CASE(the_schedule_is_the_published_product) {
    published const p(published::all());
    for (index_t t = 0; t < 1000; ++t) {
        auto const at = static_cast<std::size_t>(t);
        BOOST_TEST(std::abs(diffusion_signal(t) / p.a[at] - 1) < 1e-11);
        if (t == 0) continue;
        diffusion_step const step(diffusion_signal(t - 1), diffusion_signal(t));
        BOOST_TEST(std::abs(step.beta / p.beta[at] - 1) < 1e-9);
        BOOST_TEST(std::abs(step.variance / p.variance[at] - 1) < 1e-9);
        BOOST_TEST(step.beta <= 0.999 * (1 + 1e-12));
        BOOST_TEST(step.range > 0);
    }
    BOOST_TEST(diffusion_step(diffusion_signal(998), diffusion_signal(999)).beta == 0.999,
               boost::test_tools::tolerance(1e-12));
    // By hand: cos^2((t + 9) / 1008 pi / 2) / cos^2(8 / 1008 pi / 2); the last is a thousandth of the previous.
    BOOST_TEST(diffusion_signal(0) == 0.9999587158, boost::test_tools::tolerance(1e-7));
    BOOST_TEST(diffusion_signal(500) == 0.4922852, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(diffusion_signal(998) == 2.428767e-6, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(diffusion_signal(999) == 2.428767e-9, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(the_steps_of_a_sample_are_evenly_spaced_up_to_the_start) {
    for (index_t const start : {index_t{500}, diffusion_sampling{}.start, diffusion_sampling::published_start})
        for (index_t const steps : {1, 2, 3, 7, 100, 999, 1000}) {
            diffusion_sampling const sampling{steps, start};
            index_t const count = sampling.count();
            BOOST_TEST(count >= 1);
            if (steps == 1) BOOST_TEST(sampling.trained_step(0) == start);
            if (steps == 1) continue;
            BOOST_TEST(sampling.trained_step(0) == 0);
            BOOST_TEST(sampling.trained_step(count - 1) <= start);
            if (count < steps) BOOST_TEST(sampling.trained_step(count) > start);
            for (index_t i = 1; i < count; ++i) {
                double const exact = 999.0 * static_cast<double>(i) / static_cast<double>(steps - 1);
                BOOST_TEST(std::abs(sampling.trained_step(i) - exact) <= 0.5);
                BOOST_TEST(sampling.trained_step(i) ==
                           std::nearbyint(static_cast<double>(i) * (999.0 / static_cast<double>(steps - 1))));
                BOOST_TEST(sampling.trained_step(i) > sampling.trained_step(i - 1));
            }
        }
    BOOST_TEST((diffusion_sampling{.steps = 3, .start = 999}.trained_step(1)) == 500);  // 499.5 rounds to even
    BOOST_TEST((diffusion_sampling{.steps = 100, .start = 999}.count()) == 100);
    BOOST_TEST((diffusion_sampling{.steps = 1000, .start = 999}.count()) == 1000);
    BOOST_TEST((diffusion_sampling{.steps = 1000, .start = 0}.count()) == 1);
    BOOST_TEST(diffusion_sampling{}.trained_step(diffusion_sampling{}.count() - 1) == 989);
}

// Each step divides the state by the square root of the signal that it removes: by 347 at the published start.
BOOST_AUTO_TEST_CASE(samples_start_where_no_step_multiplies_much) {
    index_t const start = diffusion_sampling{}.start;
    BOOST_TEST(diffusion_signal(start) >= 1e-4);
    BOOST_TEST(diffusion_signal(start + 1) < 1e-4);
    auto const growth = [](diffusion_sampling const& sampling) {
        return 1 / std::sqrt(1 - sampling.step(sampling.count() - 1).beta);
    };
    BOOST_TEST(growth({}) < 3);
    BOOST_TEST(growth({100, diffusion_sampling::published_start}) > 300);
}

BOOST_AUTO_TEST_CASE(the_gradients_of_diffusion_by_the_complex_step) {
    constexpr index_t L = checked_diffusion<double>::L, R = 2, N = 3;
    published const p(published::all());
    std::array<int, 3> ends{};  // targets of step 0 below, within and above the bins
    check_head_by_complex_step<checked_diffusion>(
        R, N, [&](auto& ctx, auto& head, auto const& hidden, auto const& mean, auto const& log_std, auto const& noise) {
            std::vector<complex> x, targets;
            std::vector<std::int32_t> steps;
            for (index_t i = 0; i < R * N * L; ++i) {
                index_t const of = i / L / N * L + i % L;
                auto const t = static_cast<std::size_t>(noise.times[i / L].real() * 1000);
                targets.push_back(mean[of] + std::exp(log_std[of]) * noise.targets[i]);
                x.push_back(std::sqrt(p.a[t]) * targets.back() + std::sqrt(1 - p.a[t]) * noise.samples[i]);
                if (i % L == 0) steps.push_back(static_cast<std::int32_t>(t));
                if (t == 0) ++ends[targets.back().real() < -0.999 ? 0 : targets.back().real() > 0.999 ? 2 : 1];
            }
            auto const y = head.net.forward(ctx, in_rows<cpu, L>(x), {steps.data(), extents<dyn>(R * N)}, hidden).y;
            complex loss{};
            for (index_t i = 0; i < R * N * L; ++i) {
                auto const at = static_cast<std::size_t>(i);
                complex const guess = y[0][i], error = guess - noise.samples[i];
                loss += error * error + divergence(p, static_cast<std::size_t>(steps[at / L]), targets[at], x[at],
                                                   guess.real(), y[1][i]) /
                                            std::log(2.0);
            }
            return loss / static_cast<double>(N * L);
        });
    for (int const met : ends) BOOST_TEST(met > 0);
}

// For a target far from the prediction the probability of its bin is clamped to 1e-12, and the variance has no
// gradient.
BOOST_AUTO_TEST_CASE(impossible_bins_are_bounded) {
    auto const far = detail::bin_likelihood(60.0, 0.0, 0.8, 0.5);
    BOOST_TEST(far.value == -std::log(1e-12), boost::test_tools::tolerance(1e-14));
    BOOST_TEST(far.slope == 0.0);
    BOOST_TEST(std::isnan(detail::bin_likelihood(0.0, std::nan(""), 0.8, 0.5).value));
    // The probabilities of all bins sum to 1.
    double total = 0;
    constexpr double bin = 0.3;
    for (int k = -40; k <= 40; ++k) total += std::exp(-detail::bin_likelihood(2 * bin * k, 0.0, bin, 0.0).value);
    BOOST_TEST(total == 1.0, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(diffusion_trains_on_the_noise_of_its_positions, on, test_devices) {
    check_keyed_training<diffusion_on<on>>(300, 8);
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit_of_diffusion_and_a_dry_run_takes_its_memory) {
    check_step_laws<checked_diffusion<float>>(300, 8);
}

// Compared with the published process in double, one element at a time, with the network as in training.
BOOST_AUTO_TEST_CASE(samples_are_taken_from_noise_in_any_number_of_steps) {
    using head = checked_diffusion<double>;
    constexpr index_t R = 2, N = 3, D = head::D, L = head::L;
    prepared<head, double> p({}, 1, 0.3);
    auto const hidden = draws<double>(R * D, 1);
    std::vector<row_rng> const rngs{{{17, stream::generation, 5}, 2}, {{18, stream::evaluation, 6}, 0}};
    for (auto const& sampling :
         std::vector<diffusion_sampling>{{1}, {2}, {5}, {5, 999}, {1000, 20}, {1000}, {1000, 999}}) {
        p.model.sampling = sampling;
        index_t const count = sampling.count();
        std::vector<int> kept;
        for (index_t i = 0; i < count; ++i) kept.push_back(p.model.sampling.trained_step(i));
        published const process(kept);
        auto const noise = [&](auto const& key_of) {
            std::vector<double> all;
            for (auto const& [draws_of, first] : rngs)
                for (index_t i = 0; i < N * L; ++i)
                    all.push_back(normal<double>(key_of(draws_of), static_cast<std::uint64_t>(first * L + i)));
            return all;
        };
        auto want = noise([](key k) { return k; });
        for (index_t i = count; i-- > 0;) {
            auto const t = static_cast<std::size_t>(i);
            arena_scope const scope(p.ctx.saved);
            std::vector<std::int32_t> const steps(R * N, kept[t]);
            auto const y =
                p.model.net
                    .forward(p.ctx, in_rows<cpu, L>(want), {steps.data(), extents<dyn>(R * N)}, in_rows<cpu, D>(hidden))
                    .y;
            auto const added = noise([i](key k) { return substream_key(k, static_cast<std::uint32_t>(i)); });
            for (std::size_t e = 0; e < want.size(); ++e) {
                auto const place = static_cast<index_t>(e);
                double const deviation = std::exp(0.5 * log_variance(process, t, y[1][place]));
                want[e] = mean_of(process, t, want[e], y[0][place]) + (i > 0 ? 0.5 * deviation * added[e] : 0.0);
            }
        }
        auto const z = sampled_at<head>(p, hidden, N, rngs, 0.5);
        double largest = 1;
        for (double const value : want) largest = std::max(largest, std::abs(value));
        BOOST_TEST(close_to(std::span<double const>(z), std::span<double const>(want), 1e-8 * largest, 1e-8));
    }
    for (index_t const none : {0, 1001}) {
        p.model.sampling.steps = none;
        BOOST_CHECK_EXCEPTION(sampled_at<head>(p, hidden, N, rngs), error,
                              says(errc::usage, "expected 1 to 1000 steps", "found " + std::to_string(none)));
    }
    p.model.sampling.steps = 100;
    for (index_t const none : {-1, 1000}) {
        p.model.sampling.start = none;
        BOOST_CHECK_EXCEPTION(
            sampled_at<head>(p, hidden, N, rngs), error,
            says(errc::usage, "expected a start of samples from 0 to 999", "found " + std::to_string(none)));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(samples_of_diffusion_depend_only_on_their_rng_counters, on, test_devices) {
    diffusion_on<on> head;
    head.sampling.steps = 10;
    check_draws_by_place<diffusion_on<on>>(head, block_backend<typename on::backend>);
}

// The starting noise and all steps of all samples use disjoint random numbers.
BOOST_AUTO_TEST_CASE(every_step_has_its_own_random_sequence) {
    key const draws_of{17, stream::generation, 5};
    std::set<std::uint64_t> seeds{draws_of.seed};
    std::vector<double> all;
    for (std::uint32_t step = 0; step < 1000; ++step) {
        auto const own = substream_key(draws_of, step);
        BOOST_TEST((own.stream == draws_of.stream && own.step == draws_of.step));
        seeds.insert(own.seed);
        for (std::uint64_t i = 0; i < 20; ++i) all.push_back(normal<double>(own, i));
    }
    BOOST_TEST(seeds.size() == 1001U);
    BOOST_TEST(smirnov_p_value(all, normal_cdf) > 1e-6);
}

BOOST_AUTO_TEST_CASE(the_flops_of_a_diffusion_head_follow_from_its_matrices) {
    checked_diffusion<float> head;
    double shared = 0, sample = 0, first = 0;
    for (auto const& p : parameters_of(head)) {
        double const work = 2.0 * static_cast<double>(p.value.size());
        if (p.shape.size() == 2) (p.name == "net.cond_embed.weight" ? shared : sample) += work;
        if (p.name == "net.time_embed.mlp.0.weight" || p.name == "net.input_proj.weight") first += work;
    }
    auto const counted = small_diffusion.head.flops({head.D, head.L});
    BOOST_TEST(counted.shared == shared);
    BOOST_TEST(counted.trained == sample - first / 3);  // the inputs get no gradients
    BOOST_TEST(counted.drawn == 99 * sample);           // of 100 steps, those up to the start
}
