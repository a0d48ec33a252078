#include <algorithm>

#include "calm/loss/energy_score.hpp"
#include "support/fixtures.hpp"
#include "support/typed.hpp"

namespace {

using calm::drawn_targets;
using calm::given_targets;
using calm::index_t;
using calm::key;
using calm::stream;
using calm::view;

using scores = calm::extents<calm::dyn>;
using latents = calm::extents<calm::dyn, calm::dyn>;
using samples = calm::extents<calm::dyn, calm::dyn, calm::dyn>;
using complex = std::complex<double>;
using calm::test::test_device;
using calm::test::test_devices;
using real = test_device<calm::cpu, double>;

// A problem and its solution.
template <class E> struct problem {
    using T = typename E::scalar;
    using backend = typename E::backend;
    using context = calm::context<backend>;
    template <class Shape> using tensor = typename E::template tensor<Shape>;
    problem(index_t R, index_t N, index_t M, index_t L) :
        x(samples(R, N, L)), dx(samples(R, N, L)), eps(samples(M, R, L)), mean(latents(R, L)), log_std(latents(R, L)),
        score(scores(R)) {
        context const ctx(1, 1);
        calm::fill_normal(ctx, x.view(), {1, stream::head_noise});
        calm::fill_normal(ctx, eps.view(), {1, stream::target});
        calm::fill_normal(ctx, mean.view(), {1, stream::posterior});
        calm::fill_uniform(ctx, log_std.view(), {2, stream::posterior}, 0, T(-1.5));
    }

    template <class Targets> void solve(Targets const& targets, double beta, int threads = 1, bool gradient = true) {
        context ctx(1, threads);
        ctx.order = order;
        view<T, samples, backend> to;
        if (gradient) to = dx.view();
        calm::energy_score(ctx, score, to, x, mean, log_std, targets, beta, eps.extent(0), weight);
    }
    void solve(double beta, int threads = 1) { solve(given_targets<T, backend>{eps}, beta, threads); }
    T total() const {
        T sum{};
        for (T const s : score) sum += s;
        return sum;
    }

    tensor<samples> x, dx, eps;
    tensor<latents> mean, log_std;
    tensor<scores> score;
    double weight = 1.0;
    calm::thread_order order = calm::thread_order::ascending;
};

// The formula of the specification, in double.
template <class E> double plain(problem<E> const& p, index_t r, double beta) {
    index_t const R = p.x.extent(0), N = p.x.extent(1), L = p.x.extent(2), M = p.eps.extent(0);
    double within = 0.0;
    double across = 0.0;
    for (index_t n = 0; n < N; ++n) {
        for (index_t k = 0; k < N; ++k) {
            double square = 0.0;
            for (index_t l = 0; l < L; ++l)
                square += std::pow(
                    static_cast<double>(p.x[(r * N + n) * L + l]) - static_cast<double>(p.x[(r * N + k) * L + l]), 2);
            within += std::pow(square, beta / 2);
        }
        for (index_t m = 0; m < M; ++m) {
            double square = 0.0;
            for (index_t l = 0; l < L; ++l)
                square +=
                    std::pow(static_cast<double>(p.x[(r * N + n) * L + l]) - static_cast<double>(p.mean[r * L + l]) -
                                 std::exp(static_cast<double>(p.log_std[r * L + l])) *
                                     static_cast<double>(p.eps[(m * R + r) * L + l]),
                             2);
            across += std::pow(square, beta / 2);
        }
    }
    auto const count = static_cast<double>(N);
    return within / (count * (count - 1)) - 2 * across / (count * static_cast<double>(M));
}

// Samples of fixtures are (N, R, L), ours (R, N, L).
template <class T> std::vector<T> swapped(std::vector<T> const& from, index_t N, index_t R, index_t L) {
    std::vector<T> to(from.size());
    for (index_t n = 0; n < N; ++n)
        for (index_t r = 0; r < R; ++r) std::copy_n(from.begin() + (n * R + r) * L, L, to.begin() + (r * N + n) * L);
    return to;
}

template <class E> void compare_with_reference(std::string const& variant) {
    using T = typename E::scalar;
    calm::test::fixture const f(variant, "energy_score");
    index_t const N = f.size("N"), M = f.size("M"), L = f.size("L"), R = f.size("R");
    problem<E> p(R, N, M, L);
    std::ranges::copy(swapped(f.floats<T>("in/samples"), N, R, L), p.x.begin());
    std::ranges::copy(f.floats<T>("in/mean"), p.mean.begin());
    std::ranges::copy(f.floats<T>("in/log_std"), p.log_std.begin());
    std::ranges::copy(f.floats<T>("in/eps"), p.eps.begin());
    p.weight = 1.0 / static_cast<double>(R);
    for (auto const& [name, beta] : {std::pair("0.5", 0.5), {"1.0", 1.0}, {"1.5", 1.5}, {"1.9", 1.9}})
        BOOST_TEST_CONTEXT(variant << ", beta " << name) {
            p.solve(beta);
            auto const score = f.floats<double>(std::string("out/score_") + name);
            auto const gradient = swapped(f.floats<double>(std::string("grad/samples_") + name), N, R, L);
            BOOST_TEST(
                calm::test::close(std::vector<T>(p.score.begin(), p.score.end()), score, calm::test::kind::output));
            BOOST_TEST(
                calm::test::close(std::vector<T>(p.dx.begin(), p.dx.end()), gradient, calm::test::kind::gradient));
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_reference_agrees, E, test_devices) {
    for (auto const* variant : {"base", "two"}) compare_with_reference<E>(variant);
}

// Sizes below, at and above a tile, a packet, a block of targets and a block of threads.
BOOST_AUTO_TEST_CASE_TEMPLATE(any_size_follows_the_formula, E, test_devices) {
    for (index_t const N : {2, 3, 4, 5, 8, 11, 18})
        for (index_t const M : {1, 3, 8, 17})
            for (index_t const L : {0, 1, 7, 16, 33, 131}) {
                problem<E> p(2, N, M, L);
                for (double const beta : {1.0, 0.7}) {
                    p.solve(beta);
                    for (index_t r = 0; r < 2; ++r)
                        BOOST_TEST(std::abs(static_cast<double>(p.score[r]) - plain(p, r, beta)) <=
                                   1e-5 + 1e-5 * std::abs(plain(p, r, beta)));
                }
            }
}

// The imaginary part of the score at x + ih in one direction is the gradient along it.
BOOST_AUTO_TEST_CASE(the_gradient_by_complex_step) {
    constexpr double h = 1e-100;
    for (double const beta : {0.5, 1.0, 1.6}) {
        problem<real> p(2, 5, 6, 9);
        p.weight = 0.37;
        p.solve(beta);
        double largest = 0.0;
        for (double const d : p.dx) largest = std::max(largest, std::abs(d));
        problem<test_device<calm::cpu, complex>> c(2, 5, 6, 9);
        std::ranges::copy(p.x, c.x.begin());
        std::ranges::copy(p.eps, c.eps.begin());
        std::ranges::copy(p.mean, c.mean.begin());
        std::ranges::copy(p.log_std, c.log_std.begin());
        for (index_t i = 0; i < p.x.size(); ++i) {
            c.x[i] += complex(0.0, h);
            c.solve(given_targets<complex>{c.eps}, beta, 1, false);
            BOOST_TEST(std::abs(p.dx[i] + p.weight * c.total().imag() / h) <= 1e-14 * std::max(1.0, largest));
            c.x[i] = p.x[i];
        }
        c.weight = p.weight;
        c.solve(beta);
        for (index_t i = 0; i < p.x.size(); ++i) BOOST_TEST(std::abs(c.dx[i].real() - p.dx[i]) <= 1e-14);
    }
}

// Devices agree up to a few rounding errors, with gradients of many chunks of elements.
BOOST_AUTO_TEST_CASE_TEMPLATE(devices_agree, E, test_devices) {
    for (double const beta : {1.0, 0.4, 1.9}) {
        problem<E> p(3, 9, 20, 261);
        problem<real> q(3, 9, 20, 261);
        std::ranges::copy(p.x, q.x.begin());
        std::ranges::copy(p.eps, q.eps.begin());
        std::ranges::copy(p.mean, q.mean.begin());
        std::ranges::copy(p.log_std, q.log_std.begin());
        p.weight = q.weight = 1.0 / 3;
        p.solve(beta);
        q.solve(beta);
        using calm::test::close;
        using calm::test::copied;
        BOOST_TEST(close(copied(p.score), copied(q.score), calm::test::kind::output));
        BOOST_TEST(close(copied(p.dx), copied(q.dx), calm::test::kind::gradient));
    }
}

// Targets drawn inside are the keyed sequence in the order position, target, element.
BOOST_AUTO_TEST_CASE_TEMPLATE(drawn_targets_are_the_keyed_normals, E, test_devices) {
    using T = typename E::scalar;
    key const k{77, stream::target, 2};
    for (auto const& [M, L] : {std::pair<index_t, index_t>(11, 21), {3, 130}, {2, 259}, {17, 8}, {5, 1}}) {
        index_t const R = 5, N = 3;
        problem<E> drawn(R, N, M, L);
        problem<E> given(R, N, M, L);
        for (index_t r = 0; r < R; ++r)
            for (index_t m = 0; m < M; ++m)
                for (index_t l = 0; l < L; ++l)
                    given.eps[(m * R + r) * L + l] =
                        calm::normal<T>(k, static_cast<std::uint64_t>(((4 + r) * M + m) * L + l));
        drawn.solve(drawn_targets{k, 4}, 1.0);
        given.solve(1.0);
        using calm::test::close;
        using calm::test::copied;
        BOOST_TEST(close(copied(drawn.score), copied(given.score), calm::test::kind::output));
        BOOST_TEST(close(copied(drawn.dx), copied(given.dx), calm::test::kind::gradient));
        if constexpr (calm::block_backend<typename E::backend>) {  // the cpu's normals differ in the last bits
            BOOST_TEST(std::ranges::equal(drawn.score, given.score));
            BOOST_TEST(std::ranges::equal(drawn.dx, given.dx));
        }
    }
}

// Parts of a batch with their start positions equal the whole.
BOOST_AUTO_TEST_CASE_TEMPLATE(pieces_equal_the_whole, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    index_t const R = 7, N = 4, M = 9, L = 18;
    problem<E> whole(R, N, M, L);
    whole.solve(drawn_targets{{5, stream::target, 0}, 100}, 1.3);
    calm::context<backend> ctx(1, 1);
    for (index_t const cut : {1, 3, 6}) {
        problem<E> p(R, N, M, L);
        for (auto const& [first, count] : {std::pair(index_t{0}, cut), {cut, R - cut}})
            calm::energy_score(ctx, view<T, scores, backend>(p.score.data() + first, scores(count)),
                               calm::rows(p.dx.view(), first, count), calm::rows(p.x.view(), first, count),
                               calm::rows(p.mean.view(), first, count), calm::rows(p.log_std.view(), first, count),
                               drawn_targets{{5, stream::target, 0}, 100 + first}, 1.3, M);
        BOOST_TEST(std::ranges::equal(p.score, whole.score));
        BOOST_TEST(std::ranges::equal(p.dx, whole.dx));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(threads_and_their_order_change_nothing, E, test_devices) {
    problem<E> one(65, 8, 20, 40);
    one.solve(drawn_targets{{9, stream::target, 1}}, 1.0, 1);
    using enum calm::thread_order;
    for (auto const& [threads, order] : {std::pair(2, ascending), {3, descending}, {1, permuted}}) {
        problem<E> two(65, 8, 20, 40);
        two.order = order;
        two.solve(drawn_targets{{9, stream::target, 1}}, 1.0, threads);
        BOOST_TEST(std::ranges::equal(one.score, two.score));
        BOOST_TEST(std::ranges::equal(one.dx, two.dx));
    }
    auto const scored = calm::test::copied(one.score);
    one.solve(drawn_targets{{9, stream::target, 1}}, 1.0, 1, false);  // without the gradient
    BOOST_TEST(std::ranges::equal(one.score, scored));
}

BOOST_AUTO_TEST_CASE(the_order_of_samples_and_targets_is_of_no_account) {
    index_t const R = 3, N = 6, M = 10, L = 5;
    problem<real> p(R, N, M, L);
    problem<real> q(R, N, M, L);
    for (index_t r = 0; r < R; ++r)
        for (index_t n = 0; n < N; ++n)
            std::copy_n(p.x.data() + (r * N + n) * L, L, q.x.data() + (r * N + (n + 2) % N) * L);
    for (index_t m = 0; m < M; ++m) std::copy_n(p.eps.data() + m * R * L, R * L, q.eps.data() + (m * 3 % M) * R * L);
    p.solve(1.2);
    q.solve(1.2);
    for (index_t r = 0; r < R; ++r) BOOST_TEST(std::abs(p.score[r] - q.score[r]) <= 1e-13);
    for (index_t r = 0; r < R; ++r)
        for (index_t n = 0; n < N; ++n)
            for (index_t l = 0; l < L; ++l)
                BOOST_TEST(std::abs(p.dx[(r * N + n) * L + l] - q.dx[(r * N + (n + 2) % N) * L + l]) <= 1e-13);
}

// score(a x) = a^beta score(x), and shifting samples and mean together changes nothing.
BOOST_AUTO_TEST_CASE(scale_and_shift) {
    double const a = 3.0;
    for (double const beta : {0.5, 1.0, 1.7}) {
        problem<real> p(2, 5, 7, 6);
        problem<real> q(2, 5, 7, 6);
        for (double& x : q.x) x = a * x + 2.0;
        for (double& x : q.mean) x = a * x + 2.0;
        for (double& x : q.log_std) x += std::log(a);
        p.solve(beta);
        q.solve(beta);
        for (index_t r = 0; r < 2; ++r)
            BOOST_TEST(q.score[r] == std::pow(a, beta) * p.score[r], boost::test_tools::tolerance(1e-12));
        for (index_t i = 0; i < p.dx.size(); ++i)
            BOOST_TEST(std::abs(q.dx[i] - std::pow(a, beta - 1.0) * p.dx[i]) <= 1e-12);
    }
}

// At step 0 of training all samples are equal; a sample may also equal a target exactly.
BOOST_AUTO_TEST_CASE_TEMPLATE(equal_vectors_have_distance_and_slope_zero, E, test_devices) {
    for (double const beta : {0.3, 1.0, 1.9}) {
        problem<E> p(1, 4, 5, 17);
        std::ranges::fill(p.x, typename E::scalar(0.25));
        std::ranges::fill(p.mean, typename E::scalar(0.25));
        std::ranges::fill(p.eps, typename E::scalar(0));
        p.solve(beta);
        BOOST_TEST(p.score[0] == 0);
        BOOST_TEST(std::ranges::all_of(p.dx, [](auto d) { return d == 0; }));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(not_a_number_is_not_hidden, E, test_devices) {
    for (double const beta : {1.0, 1.5}) {
        problem<E> p(3, 4, 5, 17);
        p.x[1 * 4 * 17 + 3] = std::numeric_limits<typename E::scalar>::quiet_NaN();
        p.solve(beta);
        BOOST_TEST(std::isfinite(p.score[0]));
        BOOST_TEST(std::isnan(p.score[1]));
        BOOST_TEST(std::isfinite(p.score[2]));
        BOOST_TEST(std::isnan(p.dx[1 * 4 * 17 + 3]));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_positions, E, test_devices) {
    problem<E> p(0, 4, 5, 6);
    p.solve(1.0);
    BOOST_TEST(p.score.size() == 0);
}

BOOST_AUTO_TEST_CASE(invalid_settings_are_errors) {
    auto const says = [](std::string const& words) {
        return [words](calm::error const& e) {
            return e.code() == calm::errc::usage && std::string(e.what()).find(words) != std::string::npos;
        };
    };
    problem<test_device<calm::cpu, float>> alone(2, 1, 3, 4);
    BOOST_CHECK_EXCEPTION(alone.solve(1.0), calm::error, says("N >= 2"));
    problem<test_device<calm::cpu, float>> untargeted(2, 2, 0, 4);
    BOOST_CHECK_EXCEPTION(untargeted.solve(1.0), calm::error, says("M >= 1"));
    problem<test_device<calm::cpu, float>> p(2, 2, 3, 4);
    for (double const beta : {0.0, 2.0, -1.0, static_cast<double>(NAN)})
        BOOST_CHECK_EXCEPTION(p.solve(beta), calm::error, says("0 < beta < 2"));
    calm::tensor<float, samples> const other(samples(2, 2, 5));
    BOOST_CHECK_EXCEPTION(p.solve(given_targets<float>{other}, 1.0), calm::error, says("(M, R, L) = (3, 2, 4)"));
    p.mean = calm::tensor<float, latents>(latents(2, 5));
    BOOST_CHECK_EXCEPTION(p.solve(1.0), calm::error, says("(2, 5)"));
}

}  // namespace
