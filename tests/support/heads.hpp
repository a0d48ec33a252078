#pragma once
// Shared by the tests of all heads except the energy head: random noise, one step of a head, and its gradients checked
// by the complex step and against the reference.

#include <functional>
#include <span>
#include <vector>

#include "calm/model/detail/heads/paired.hpp"
#include "support/gradient_check.hpp"
#include "support/models.hpp"
#include "support/small.hpp"

namespace calm::test {

// The noise that a loss takes, with its memory.
template <class T, index_t L, class Backend = cpu> struct own_noise {
    numbers<T, Backend> targets, samples, times;
    [[nodiscard]] paired_noise<T, L, Backend> seen() const {
        return {in_rows<Backend, L>(targets), in_rows<Backend, L>(samples), in_vector<Backend>(times)};
    }
};

// Arbitrary noise for `rows` samples: normals, and times in [0, 1), of which the first three are 0 and the last lies in
// the last step.
template <class T, index_t L> own_noise<T, L> some_noise(index_t rows) {
    own_noise<T, L> noise{draws<T>(rows * L, 21), draws<T>(rows * L, 22), {}};
    for (index_t i = 0; i < rows; ++i)
        noise.times.push_back(
            i < 3 ? T(0) : static_cast<T>(uniform({23, stream::evaluation, 0}, static_cast<std::uint64_t>(i))));
    noise.times.back() = T(0.9995);
    return noise;
}

// The noise that a training step draws for R positions of N samples, starting at position `first`, one value at a time.
template <class T, index_t L, class Backend>
own_noise<T, L, Backend> noise_of_a_step(context<Backend> const& ctx, index_t R, index_t N, index_t first) {
    own_noise<T, L> noise;
    auto const keyed = [&](stream s) { return key{ctx.seed, s, ctx.step}; };
    for (index_t i = first * N; i < (first + R) * N; ++i) {
        for (index_t l = 0; l < L; ++l) {
            auto const element = static_cast<std::uint64_t>(i * L + l);
            noise.targets.push_back(static_cast<T>(normal<double>(keyed(stream::target), element)));
            noise.samples.push_back(static_cast<T>(normal<double>(keyed(stream::head_noise), element)));
        }
        noise.times.push_back(static_cast<T>(uniform(keyed(stream{17}), static_cast<std::uint64_t>(i))));
    }
    return {placed<Backend>(noise.targets), placed<Backend>(noise.samples), placed<Backend>(noise.times)};
}

// Loss and gradients of a head, and the memory used.
template <class T> struct trained_head {
    double loss = 0;
    std::vector<T> dhidden;
    std::vector<std::vector<T>> gradients;
    std::size_t saved = 0, workspace = 0;
};

// Calls loss(p, total, in, out) for a head with random parameters, at R positions with random hidden states and
// posteriors; the gradients are those of half the sum.
template <class Head, class Loss>
trained_head<typename Head::scalar> step_of(index_t R, int threads, Loss const& loss, bool dry_run = false) {
    using T = typename Head::scalar;
    using backend = typename Head::backend;
    constexpr index_t D = Head::D, L = Head::L;
    prepared<Head, T, backend> p({}, threads, 0.3);
    p.ctx.seed = 17;
    p.ctx.step = 5;
    p.ctx.set_dry_run(dry_run);
    if constexpr (device_memory<backend>) p.ctx.memory = 1 << 20;  // forces more than one chunk of positions
    auto const hidden = draws<T, backend>(R * D, 1);
    auto const mean = draws<T, backend>(R * L, 2);
    auto const log_std = draws<T, backend>(R * L, 3, 0.3, -1);
    trained_head<T> result;
    numbers<T, backend> dhidden(hidden.size(), T(777));  // must be overwritten
    typename Head::inputs_type const in{.hidden = in_rows<backend, D>(hidden),
                                        .mean = in_rows<backend, L>(mean),
                                        .log_std = in_rows<backend, L>(log_std)};
    typename Head::gradients_type const out{.dhidden = out_rows<backend, D>(dhidden), .scale = 0.5};
    result.loss = total_of(p.ctx, [&](auto const& total) { loss(p, total, in, out); });
    result.dhidden = copied(dhidden);
    for (auto const& q : p.params) result.gradients.push_back(copied(q.grad, q.size));
    BOOST_TEST(p.ctx.saved.used() == 0U);
    BOOST_TEST(p.ctx.workspace.used() == 0U);
    result.saved = p.ctx.saved.peak();
    result.workspace = p.ctx.workspace.peak();
    return result;
}

template <class T> void check_alike(trained_head<T> const& got, trained_head<T> const& want) {
    BOOST_TEST(near(got.loss, want.loss, 1e-5));
    BOOST_TEST(close(got.dhidden, want.dhidden, kind::gradient));
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
        BOOST_TEST(close(got.gradients[i], want.gradients[i], kind::gradient), "gradient " << i);
}

// A head trains on the keyed noise of its positions, in several chunks. Micro-batches draw the same noise as the whole
// step, and an empty dhidden computes the loss alone.
template <class Head> void check_keyed_training(index_t R, index_t N) {
    using T = typename Head::scalar;
    using backend = typename Head::backend;
    constexpr index_t L = Head::L, first = 7;
    paired_objective const o{.samples = N};
    auto const step = [&](auto const& loss) { return step_of<Head>(R, 2, loss); };
    auto const got = step([&](auto& p, auto const& total, auto const& in, auto const& out) {
        p.model.loss_and_gradient(p.ctx, total, in, out, o, first);
    });
    BOOST_TEST(std::isfinite(got.loss));
    check_alike(got, step([&](auto& p, auto const& total, auto const& in, auto const& out) {
                    p.model.loss_and_gradient(p.ctx, total, in, out, o,
                                              noise_of_a_step<T, L, backend>(p.ctx, R, N, first).seen());
                }));
    check_alike(got, step([&](auto& p, auto const& total, auto const& in, auto const& out) {
                    for (auto const& [r, n] : {std::pair<index_t, index_t>{0, R / 3}, {R / 3, R - R / 3}})
                        p.model.loss_and_gradient(p.ctx, total, in.part(r, n), out.part(r, n), o, first + r);
                }));
    auto const loss_alone = step([&](auto& p, auto const& total, auto const& in, auto const&) {
        p.model.loss_and_gradient(p.ctx, total, in, {}, o, first);
    });
    BOOST_TEST(loss_alone.loss == got.loss);
    for (auto const& g : loss_alone.gradients) BOOST_TEST(std::count(g.begin(), g.end(), T{}) == std::ssize(g));
}

// Results are bit-identical with 1, 2 and 3 threads. A dry run takes the memory of the step (each thread has its own
// workspace) and computes nothing.
template <class Head> void check_step_laws(index_t R, index_t N) {
    using T = typename Head::scalar;
    auto const step = [&](int threads, bool dry_run) {
        return step_of<Head>(
            R, threads,
            [&](auto& p, auto const& total, auto const& in, auto const& out) {
                p.model.loss_and_gradient(p.ctx, total, in, out, paired_objective{.samples = N}, 0);
            },
            dry_run);
    };
    auto const one = step(1, false);
    for (int const threads : {1, 2, 3}) {
        auto const more = step(threads, false);
        BOOST_TEST(more.loss == one.loss);
        BOOST_TEST((more.gradients == one.gradients && more.dhidden == one.dhidden), threads << " threads: other bits");
        auto const dry = step(threads, true);
        BOOST_TEST(dry.saved == one.saved);
        BOOST_TEST(dry.workspace == more.workspace);
        for (auto const& g : dry.gradients) BOOST_TEST(std::count(g.begin(), g.end(), T{}) == std::ssize(g));
    }
}

// Checks gradients of a head's loss at R positions of N samples with given noise against the complex step.
// surrogate(ctx, head, hidden, mean, log_std, noise) is an independent implementation of the loss.
template <template <class> class Head, class Surrogate>
void check_head_by_complex_step(index_t R, index_t N, Surrogate const& surrogate) {
    constexpr index_t D = Head<double>::D, L = Head<double>::L;
    prepared<Head<double>, double> real({}, 1, 0.3);
    prepared<Head<complex>, complex> twin({}, 1, 0.3);
    auto const hidden = draws<double>(R * D, 1);
    auto const mean = draws<double>(R * L, 2);
    auto const log_std = draws<double>(R * L, 3, 0.3, -1);
    auto const noise = some_noise<double, L>(R * N);
    std::vector<double> dhidden(hidden.size(), 777.0);             // must be overwritten
    for (auto& p : real.params) std::fill_n(p.grad, p.size, 1.0);  // must be added to
    double const loss = total_of(real.ctx, [&](auto const& total) {
        real.model.loss_and_gradient(
            real.ctx, total,
            {.hidden = in_rows<cpu, D>(hidden), .mean = in_rows<cpu, L>(mean), .log_std = in_rows<cpu, L>(log_std)},
            {.dhidden = out_rows<cpu, D>(dhidden), .scale = 0.7}, {}, noise.seen());
    });
    for (auto& p : real.params)
        for (index_t i = 0; i < p.size; ++i) p.grad[i] -= 1.0;

    auto wide = [](std::vector<double> const& x) { return std::vector<complex>(x.begin(), x.end()); };
    auto ch = wide(hidden);
    auto const cmean = wide(mean), clog_std = wide(log_std);
    own_noise<complex, L> const cnoise{wide(noise.targets), wide(noise.samples), wide(noise.times)};
    auto const f = [&] {
        arena_scope const scope(twin.ctx.saved);
        return complex(surrogate(twin.ctx, twin.model, in_rows<cpu, D>(ch), in_rows<cpu, L>(cmean),
                                 in_rows<cpu, L>(clog_std), cnoise.seen()));
    };
    BOOST_TEST(near(loss, f().real(), 1e-12));
    auto const slope = [&](complex& element) { return 0.7 * complex_slope(element, f); };
    check_by_differences("hidden", dhidden.data(), std::ssize(dhidden),
                         [&](index_t i) { return slope(ch[static_cast<std::size_t>(i)]); });
    BOOST_REQUIRE(real.params.size() == twin.params.size());
    for (std::size_t k = 0; k < real.params.size(); ++k)
        check_by_differences(
            real.params[k].name, real.params[k].grad, real.params[k].size,
            [&](index_t i) { return slope(twin.params[k].value[i]); }, 4);
}

// Checks the loss of every row against the fixture, with one sample of noise per row, and the gradients of the sum.
template <class Head, class Noise>
void check_training(context<typename Head::backend>& ctx, Head& model, fixture const& f, Noise const& noise) {
    using backend = typename Head::backend;
    constexpr index_t D = Head::D, L = Head::L;
    auto const hidden = placed<backend>(f.floats("in/hidden"));
    auto const target = placed<backend>(f.floats("in/target"));
    numbers<float, backend> const log_std(target.size());
    typename Head::inputs_type const in{.hidden = in_rows<backend, D>(hidden),
                                        .mean = in_rows<backend, L>(target),
                                        .log_std = in_rows<backend, L>(log_std)};
    auto const given = noise.seen();

    std::vector<double> losses;
    for (index_t r = 0; r < in.hidden.extent(0); ++r)
        losses.push_back(total_of(ctx, [&](auto const& total) {
            model.loss_and_gradient(
                ctx, total, in.part(r, 1), {}, {},
                {rows(given.targets, r, 1), rows(given.samples, r, 1), {given.times.data() + r, extents<dyn>(1)}});
        }));
    BOOST_TEST(close(losses, f.floats<double>("out/loss"), kind::output));
    numbers<float, backend> dhidden(hidden.size());
    total_of(ctx, [&](auto const& total) {
        model.loss_and_gradient(ctx, total, in, {.dhidden = out_rows<backend, D>(dhidden)}, {}, given);
    });
    BOOST_TEST(close(copied(dhidden), f.floats("grad/hidden"), kind::gradient));
    check_gradients(parameters_of(model), f);
}

// N latents from a head's `sample` with each of the rngs.
template <class Head, class Prepared>
std::vector<typename Head::scalar> sampled_at(Prepared& p, std::vector<typename Head::scalar> const& of, index_t N,
                                              std::span<row_rng const> rngs, double scale = 1) {
    using backend = typename Head::backend;
    auto const hidden = placed<backend>(of);
    numbers<typename Head::scalar, backend> z(rngs.size() * static_cast<std::size_t>(N * Head::L));
    p.model.sample(p.ctx, out_rows<backend, Head::L>(z), {.hidden = in_rows<backend, Head::D>(hidden)}, rngs, scale);
    BOOST_TEST(p.ctx.saved.used() == 0U);
    BOOST_TEST(p.ctx.workspace.used() == 0U);
    return copied(z);
}

// Samples of several texts at once: each row equals the row computed alone, and its draws equal those drawn in several
// rounds. Bit-identical where products of at most 15 rows do not depend on the number of rows.
template <class Head> void check_draws_by_place(Head const& head, bool bit_for_bit) {
    using T = typename Head::scalar;
    using backend = typename Head::backend;
    constexpr index_t R = 3, N = 5, D = Head::D, L = Head::L;
    prepared<Head, T, backend> p(head, 2, 0.3);
    auto const hidden = draws<T>(R * D, 1);
    std::vector<row_rng> const rngs{
        {{17, stream::generation, 5}, 2}, {{17, stream::generation, 6}, 2}, {{18, stream::evaluation, 5}, 0}};
    auto const all = sampled_at<Head>(p, hidden, N, rngs);
    BOOST_TEST((all == sampled_at<Head>(p, hidden, N, rngs)), "the same rngs draw otherwise");
    double largest = 1;  // random weights over many steps give large values
    for (T const value : all) largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (index_t r = 0; r < R; ++r) {
        std::vector<T> const alone(hidden.begin() + r * D, hidden.begin() + (r + 1) * D);
        for (auto const& [n, count] : {std::pair<index_t, index_t>{0, N}, {0, 2}, {2, 3}, {4, 1}}) {
            auto place = rngs[static_cast<std::size_t>(r)];
            place.first += n;
            auto const got = sampled_at<Head>(p, alone, count, {&place, 1});
            std::vector<T> const want(all.begin() + (r * N + n) * L, all.begin() + (r * N + n + count) * L);
            if (bit_for_bit)
                BOOST_TEST((got == want), "row " << r << ", draws from " << n);
            else
                BOOST_TEST(close_to(std::span<T const>(got), std::span<T const>(want), 1e-5 * largest, 1e-5),
                           "row " << r << ", draws from " << n);
        }
    }
}

}  // namespace calm::test
