// The random draws of models against docs/mathematics.md: hidden tokens and latents, head noise, initial weights. Each
// frequency check rejects a correct generator for one in a million seeds; the seeds are fixed.
#include <array>
#include <cmath>
#include <set>

#include "calm/model/calm.hpp"
#include "support/gradient_check.hpp"
#include "support/small.hpp"
#include "support/statistics.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr double error_rate = 1e-6;
constexpr index_t V = 13, K = 2, L = 4;

// No token is id 0.
template <class Backend> auto tokens_above_zero(index_t n) {
    typename test_device<Backend, token_id>::vector ids{extents<dyn>(n)};
    for (index_t i = 0; i < n; ++i) ids[i] = static_cast<token_id>(1 + (5 * i + i / V) % (V - 1));
    return ids;
}

// What one training step hides and drops, for R patches.
struct drawn_step {
    std::vector<char> hidden;   // (R K)
    std::vector<char> dropped;  // (R L)
    std::vector<double> eps;    // (R L)
};

template <class On> drawn_step draw_step(std::uint32_t step, double rate, index_t patches = 10000) {
    using backend = typename On::backend;
    using model_type = autoencoder<uneven.autoencoder, space<backend, typename On::scalar>>;
    context<backend> ctx(11, 2);
    ctx.step = step;
    model_type const model(V);
    auto const tokens = tokens_above_zero<backend>(patches * K);
    auto const noise = model.draw(ctx, tokens.view(), rate);
    drawn_step drawn;
    auto const kept = static_cast<typename On::scalar>(1 / (1 - rate));
    int others = 0;  // hidden tokens that are not 0, kept tokens that changed, latents neither dropped nor scaled
    auto const shown = opened(noise.shown);
    for (index_t i = 0; i < patches * K; ++i) {
        others += shown[i] != tokens[i] && shown[i] != 0 ? 1 : 0;
        drawn.hidden.push_back(shown[i] == 0 ? 1 : 0);
    }
    auto const scale = opened(noise.scale), eps = opened(noise.eps);
    for (index_t i = 0; i < patches * L; ++i) {
        others += scale[i] != kept && scale[i] != 0 ? 1 : 0;
        drawn.dropped.push_back(scale[i] == 0 ? 1 : 0);
        drawn.eps.push_back(static_cast<double>(eps[i]));
    }
    BOOST_TEST(others == 0);
    return drawn;
}

// p-value for independence of two masks of equal rate, read as pairs (a[i], b[i]): all four outcomes are counted.
double p_apart(std::vector<char> const& a, std::vector<char> const& b, double rate) {
    std::vector<std::int64_t> seen(4, 0);
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) ++seen[static_cast<std::size_t>(2 * a[i] + b[i])];
    double const kept = 1 - rate;
    return p_value({kept * kept, kept * rate, rate * kept, rate * rate}, seen);
}

// Every `stride`-th element, starting at `first`.
std::vector<char> every(std::vector<char> const& all, std::size_t stride, std::size_t first) {
    std::vector<char> some;
    for (std::size_t i = first; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(a_token_is_hidden_and_a_latent_dropped_with_the_rate_each_by_itself, on, test_devices) {
    BOOST_TEST(autoencoder_objective{}.dropout == 0.15);
    for (double const rate : {0.15, 0.4}) {
        auto const drawn = draw_step<on>(3, rate);
        auto const next = draw_step<on>(4, rate);
        for (auto const& [width, mask, later] : {std::tuple(std::size_t{K}, &drawn.hidden, &next.hidden),
                                                 {std::size_t{L}, &drawn.dropped, &next.dropped}}) {
            // The total count obeys the binomial bound: |count - n p| <= 4.9 standard deviations.
            auto const n = static_cast<double>(mask->size());
            auto const count = static_cast<double>(std::count(mask->begin(), mask->end(), 1));
            BOOST_TEST(std::abs(count - n * rate) <= 4.9 * std::sqrt(n * rate * (1 - rate)));
            BOOST_TEST(p_apart(*mask, *later, rate) > error_rate, "two steps");
            for (std::size_t i = 0; i < width; ++i) {
                auto const one = every(*mask, width, i);
                BOOST_TEST(p_apart(one, {one.begin() + 1, one.end()}, rate) > error_rate, "neighbouring patches");
                BOOST_TEST(p_apart(one, every(*mask, width, (i + 1) % width), rate) > error_rate, "within a patch");
            }
        }
        BOOST_TEST(p_apart(drawn.hidden, drawn.dropped, rate) > error_rate, "tokens and latents");
        // The posterior's noise is normal, whether its latent is kept or dropped.
        for (char const dropped : {'\0', '\x01'}) {
            std::vector<double> eps;
            for (std::size_t i = 0; i < drawn.eps.size(); ++i)
                if (drawn.dropped[i] == dropped) eps.push_back(drawn.eps[i]);
            BOOST_TEST(smirnov_p_value(eps, normal_cdf) > error_rate);
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_rate_of_zero_hides_nothing_and_labels_are_left_alone, on, test_devices) {
    using backend = typename on::backend;
    auto const none = draw_step<on>(3, 0, 50);
    BOOST_TEST(std::count(none.hidden.begin(), none.hidden.end(), 1) == 0);
    BOOST_TEST(std::count(none.dropped.begin(), none.dropped.end(), 1) == 0);
    context<backend> ctx(11, 1);
    auto const tokens = tokens_above_zero<backend>(600);
    auto const before = copied(tokens);
    autoencoder<uneven.autoencoder, space<backend, typename on::scalar>> const model(V);
    BOOST_TEST((copied(model.draw(ctx, tokens.view(), 0.9).shown) != before));
    BOOST_TEST((copied(tokens) == before));
}

// Micro-batches draw the same noise as the whole step.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_patch_draws_by_its_number_in_the_step, on, test_devices) {
    using backend = typename on::backend;
    context<backend> ctx(11, 1);
    autoencoder<uneven.autoencoder, space<backend, typename on::scalar>> const model(V);
    auto const tokens = tokens_above_zero<backend>(90 * K);
    auto const whole = model.draw(ctx, tokens.view(), 0.3);
    auto const ids = copied(tokens.view());
    for (auto const& [first, count] : {std::pair<index_t, index_t>{0, 41}, {41, 49}}) {
        auto const piece = model.draw(ctx, rows(tokens.view(), first * K, count * K), 0.3, first);
        BOOST_TEST((copied(piece.shown) == copied(rows(whole.shown, first * K, count * K))));
        BOOST_TEST((copied(piece.eps) == copied(rows(whole.eps, first, count))));
        BOOST_TEST((copied(piece.scale) == copied(rows(whole.scale, first, count))));
        // `prepare` on the host gives equal results.
        auto const own =
            std::span(ids).subspan(static_cast<std::size_t>(first * K), static_cast<std::size_t>(count * K));
        auto const prepared = model.prepare(ctx, own, 0.3, first);
        BOOST_TEST((copied(prepared.labels.view()) == std::vector<token_id>(own.begin(), own.end())));
        BOOST_TEST((copied(prepared.shown.ids.view()) == copied(piece.shown)));
        BOOST_TEST((copied(prepared.eps) == copied(piece.eps)));
        BOOST_TEST((copied(prepared.scale) == copied(piece.scale)));
    }
}

namespace {

// `count` centred uniforms of a key, starting at `first`.
template <class T> std::vector<T> centred_uniforms(key k, index_t first, index_t count) {
    std::vector<T> u;
    for (index_t i = 0; i < count; ++i)
        u.push_back(static_cast<T>(static_cast<double>(uniform(k, static_cast<std::uint64_t>(first + i))) - 0.5));
    return u;
}
template <class T> struct head_outcome {
    double loss = 0;
    std::vector<T> dhidden;
    std::vector<std::vector<T>> gradients;
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_noise_of_a_head_is_uniform_around_zero) {
    constexpr index_t n = 100000, S = 6;
    auto const x = centred_uniforms<double>({17, stream::head_noise, 5}, 0, n);
    BOOST_TEST(*std::min_element(x.begin(), x.end()) >= -0.5);
    BOOST_TEST(*std::max_element(x.begin(), x.end()) < 0.5);
    BOOST_TEST(smirnov_p_value(x, [](double u) { return u + 0.5; }) > error_rate);
    double mean = 0, square = 0, fourth = 0, beside = 0, below = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        mean += x[i] / n;
        square += x[i] * x[i] / n;
        fourth += std::pow(x[i], 4) / n;
        beside += x[i] * x[(i + 1) % n] / n;
        below += x[i] * x[(i + S) % n] / n;
    }
    // Each is within 4.9 standard deviations of its mean; the variances are 1/12, 1/180, 1/2304 - 1/6400 and 1/144 over
    // n.
    double const bound = 4.9 / std::sqrt(static_cast<double>(n));
    BOOST_TEST(std::abs(mean) <= bound / std::sqrt(12.0));
    BOOST_TEST(std::abs(square - 1.0 / 12) <= bound / std::sqrt(180.0));
    BOOST_TEST(std::abs(fourth - 1.0 / 80) <= bound * std::sqrt(1.0 / 2304 - 1.0 / 6400));
    BOOST_TEST(std::abs(beside) <= bound / 12);
    BOOST_TEST(std::abs(below) <= bound / 12);
}

// In training the noise is the uniforms of stream head_noise and the normals of stream target, indexed by the position
// in the step. There are more positions than one chunk of the head.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_head_trains_on_the_noise_of_its_positions, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    using head = energy_head<uneven, space<backend, T>>;
    constexpr index_t R = 300, N = 8, M = 2, D = head::D, S = head::S, first = 7;
    energy_objective const o{.samples = N, .targets = M, .beta = 1};
    auto const hidden = draws<T, backend>(R * D, 1);
    auto const mean = draws<T, backend>(R * L, 2);
    auto const log_std = draws<T, backend>(R * L, 3, 0.3, -1);
    typename head::inputs_type const in{.hidden = in_rows<backend, D>(hidden),
                                        .mean = in_rows<backend, L>(mean),
                                        .log_std = in_rows<backend, L>(log_std)};

    auto const train = [&](auto const& loss_of) {
        prepared<head, T, backend> p({}, 2);
        p.ctx.seed = 17;
        p.ctx.step = 5;
        if constexpr (device_memory<backend>) p.ctx.memory = 1 << 20;  // forces more than one chunk of positions
        numbers<T, backend> dhidden(hidden.size());
        head_outcome<T> result;
        result.loss = loss_of(p, out_rows<backend, D>(dhidden));
        result.dhidden = copied(dhidden);
        for (auto const& q : p.params) result.gradients.push_back(copied(q.grad, q.size));
        return result;
    };
    auto const got = train([&](auto& p, auto const& dhidden) {
        return total_of(p.ctx, [&](auto const& total) {
            p.model.loss_and_gradient(p.ctx, total, in, {.dhidden = dhidden}, o, first);
        });
    });
    auto const noise = placed<backend>(centred_uniforms<T>({17, stream::head_noise, 5}, first * N * S, R * N * S));
    std::vector<T> eps;  // (M, R, L)
    for (index_t m = 0; m < M; ++m)
        for (index_t r = 0; r < R; ++r)
            for (index_t l = 0; l < L; ++l)
                eps.push_back(static_cast<T>(normal<double>(
                    {17, stream::target, 5}, static_cast<std::uint64_t>(((first + r) * M + m) * L + l))));
    auto const there = placed<backend>(eps);
    auto const want = train([&](auto& p, auto const& dhidden) {
        typename head::given_noise const given{in_rows<backend, S>(noise),
                                               {{there.data(), extents<dyn, dyn, dyn>(M, R, L)}}};
        return total_of(p.ctx, [&](auto const& total) {
            p.model.loss_and_gradient(p.ctx, total, in, {.dhidden = dhidden}, o, given);
        });
    });
    BOOST_TEST(near(got.loss, want.loss, 1e-5));
    BOOST_TEST(close(got.dhidden, want.dhidden, kind::gradient));
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
        BOOST_TEST(close(got.gradients[i], want.gradients[i], kind::gradient), "gradient " << i);
}

// In sampling, row r uses the uniforms of the key and number given for it, times the scale.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_head_samples_with_the_noise_of_its_places, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    using head = energy_head<uneven, space<backend, T>>;
    constexpr index_t R = 3, N = 5, D = head::D, S = head::S;
    prepared<head, T, backend> p({}, 2);
    auto const hidden = draws<T, backend>(R * D, 1);
    std::array<row_rng, R> const rngs{
        {{{17, stream::generation, 5}, 2}, {{17, stream::generation, 6}, 2}, {{18, stream::evaluation, 5}, 0}}};
    for (double const scale : {1.0, 0.25}) {
        numbers<T, backend> z(static_cast<std::size_t>(R * N * L));
        p.model.sample(p.ctx, out_rows<backend, L>(z), {.hidden = in_rows<backend, D>(hidden)}, rngs, scale);
        std::vector<T> noise;
        for (auto const& place : rngs)
            for (T const u : centred_uniforms<T>(place.draws, place.first * S, N * S))
                noise.push_back(static_cast<T>(static_cast<double>(u) * scale));
        auto const there = placed<backend>(noise);
        auto const want = copied(p.model.forward(p.ctx, in_rows<backend, D>(hidden), in_rows<backend, S>(there)).y);
        BOOST_TEST(close(copied(z), want, kind::output));
    }
}

namespace {

bool ends_with(std::string const& name, char const* end) {
    return std::string_view(name).ends_with(end);
}

}  // namespace

// By the published names: gains of norms are 1, biases and the head's last layer 0, all else normal(0, 0.02).
BOOST_AUTO_TEST_CASE_TEMPLATE(a_model_starts_as_published, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    constexpr index_t vocabulary = 300;
    calm_model<uneven, space<backend, T>> model(vocabulary);
    arena<backend> values("values");
    allocate(model, values, static_cast<arena<backend>*>(nullptr));
    allocate(model.ae_model, values, static_cast<arena<backend>*>(nullptr));
    context<backend> ctx(5, 2);
    initialise(ctx, model);
    initialise(ctx, model.ae_model);

    std::set<std::string> zero;
    auto const check = [&](auto const& parameters) {
        std::vector<double> all;
        std::set<T> first;
        std::size_t matrices = 0;
        for (auto const& p : parameters) {
            auto const numbers_of = copied(p.value);
            auto const is = [&](T want) {
                return std::count(numbers_of.begin(), numbers_of.end(), want) == std::ssize(numbers_of);
            };
            if (ends_with(p.name, "norm.weight") || ends_with(p.name, "_ln.weight") ||
                p.name.find("norm_") != std::string::npos || ends_with(p.name, "embed_proj.3.weight")) {
                BOOST_TEST(is(ends_with(p.name, ".bias") ? T(0) : T(1)), p.name);
            } else if (ends_with(p.name, ".bias")) {
                BOOST_TEST(is(T(0)), p.name);
            } else if (is(T(0))) {
                zero.insert(p.name);
            } else {
                ++matrices;
                first.insert(numbers_of[0]);
                std::vector<double> const x(numbers_of.begin(), numbers_of.end());
                BOOST_TEST(smirnov_p_value(x, [](double v) { return normal_cdf(v / 0.02); }) > error_rate, p.name);
                all.insert(all.end(), x.begin(), x.end());
            }
        }
        // The standard deviation over all weights, within 4.9 of its standard errors.
        double square = 0;
        for (double const v : all) square += v * v;
        auto const n = static_cast<double>(all.size());
        BOOST_TEST(std::abs(std::sqrt(square / n) / 0.02 - 1) <= 4.9 / std::sqrt(2 * n));
        BOOST_TEST(first.size() == matrices, "two parameters begin alike");
    };
    check(parameters_of(model));
    check(parameters_of(model.ae_model));
    BOOST_TEST((zero == std::set<std::string>{"mlp_generator.final_layer.linears.2.weight"}));

    // Consequently every sample of an untrained model is the centre of the latent space.
    auto const hidden = draws<T, backend>(3 * 12, 1), noise = draws<T, backend>(6 * 6, 2);
    for (T const z : copied(model.generator.forward(ctx, in_rows<backend, 12>(hidden), in_rows<backend, 6>(noise)).y))
        BOOST_TEST(z == T(0));
}
