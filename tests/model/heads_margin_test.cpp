#include "calm/model/calm.hpp"
#include "calm/model/heads/margin.hpp"
#include "support/heads.hpp"
#include "support/statistics.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr configuration<margin> small_margin = with_head(uneven, margin{});
template <class T> using checked_margin = margin_head<small_margin, space<cpu, T>>;
template <class On> using margin_on = margin_head<small_margin, space<typename On::backend, typename On::scalar>>;

}  // namespace

// The samples are held fixed: gradients flow through the prediction, not through the samples.
BOOST_AUTO_TEST_CASE(the_gradients_of_the_margin_loss_by_the_complex_step) {
    constexpr index_t L = checked_margin<double>::L, R = 5, N = 4;
    int held = 0, lost = 0;  // targets within the margin, and others
    check_head_by_complex_step<checked_margin>(
        R, N, [&](auto& ctx, auto& head, auto const& hidden, auto const& mean, auto const& log_std, auto const& noise) {
            auto const f = head.linears.forward(ctx, hidden).y;
            complex loss{};
            for (index_t i = 0; i < R * N; ++i) {
                complex to_target{}, to_sample{};
                for (index_t l = 0; l < L; ++l) {
                    index_t const of = i / N * L + l;
                    complex const y = mean[of] + std::exp(log_std[of]) * noise.targets[i * L + l];
                    complex const x = f[of].real() + noise.samples[i * L + l].real();
                    to_target += (f[of] - y) * (f[of] - y);
                    to_sample += (f[of] - x) * (f[of] - x);
                }
                complex const short_of = to_target - to_sample + 1.0;
                ++(short_of.real() > 0 ? lost : held);
                if (short_of.real() > 0) loss += short_of;
                loss += 0.1 * to_target / static_cast<double>(L);
            }
            return loss / static_cast<double>(N);
        });
    BOOST_TEST(held > 0);
    BOOST_TEST(lost > 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_margin_head_trains_on_the_noise_of_its_positions, on, test_devices) {
    check_keyed_training<margin_on<on>>(300, 8);
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit_of_the_margin_loss_and_a_dry_run_takes_its_memory) {
    check_step_laws<checked_margin<float>>(300, 8);
}

// If the prediction equals all targets, the loss is the mean of max(0, 1 - |noise|^2).
BOOST_AUTO_TEST_CASE(a_right_guess_counts_only_for_near_samples) {
    using head = checked_margin<double>;
    constexpr index_t N = 50, L = head::L;
    prepared<head, double> p{};
    auto const hidden = draws<double>(head::D, 1);
    auto const guess = copied(p.model.linears.forward(p.ctx, in_rows<cpu, head::D>(hidden)).y);
    p.ctx.saved.clear();
    auto noise = some_noise<double, L>(N);
    std::fill(noise.targets.begin(), noise.targets.end(), 0.0);
    for (auto& x : noise.samples) x *= 0.6;
    std::vector<double> const log_std(L);
    double want = 0;
    int near_ones = 0;
    for (std::size_t n = 0; n < N; ++n) {
        double square = 0;
        for (std::size_t l = 0; l < L; ++l) square += noise.samples[n * L + l] * noise.samples[n * L + l];
        want += std::max(0.0, 1 - square) / N;
        near_ones += square < 1 ? 1 : 0;
    }
    BOOST_TEST((near_ones > 0 && near_ones < N));
    BOOST_TEST(total_of(p.ctx,
                        [&](auto const& total) {
                            p.model.loss_and_gradient(p.ctx, total,
                                                      {.hidden = in_rows<cpu, head::D>(hidden),
                                                       .mean = in_rows<cpu, L>(guess),
                                                       .log_std = in_rows<cpu, L>(log_std)},
                                                      {}, {}, noise.seen());
                        }) == want,
               boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(samples_of_the_margin_head_depend_only_on_their_rng_counters, on, test_devices) {
    check_draws_by_place<margin_on<on>>({}, block_backend<typename on::backend>);
}

// Normal around the prediction with spread 1, or scaled, for any hidden state.
BOOST_AUTO_TEST_CASE_TEMPLATE(samples_have_the_stated_spread, on, test_devices) {
    using head = margin_on<on>;
    using T = typename on::scalar;
    using backend = typename on::backend;
    constexpr index_t R = 2, N = 5000, L = head::L;
    prepared<head, T, backend> p({}, 2);
    auto const hidden = draws<T>(R * head::D, 1);
    auto const there = placed<backend>(hidden);
    auto const guess = copied(p.model.linears.forward(p.ctx, in_rows<backend, head::D>(there)).y);
    p.ctx.saved.clear();
    std::vector<row_rng> const rngs{{{17, stream::generation, 5}, 0}, {{17, stream::generation, 6}, 0}};
    for (double const scale : {1.0, 0.25}) {
        auto const z = sampled_at<head>(p, hidden, N, rngs, scale);
        for (std::size_t r = 0; r < R; ++r)
            for (std::size_t l = 0; l < L; ++l) {
                std::vector<double> x;
                for (std::size_t n = 0; n < N; ++n)
                    x.push_back(static_cast<double>(z[(r * N + n) * L + l] - guess[r * L + l]) / scale);
                BOOST_TEST(smirnov_p_value(x, normal_cdf) > 1e-6);
            }
    }
}

BOOST_AUTO_TEST_CASE(the_flops_of_a_margin_head_follow_from_its_matrices) {
    checked_margin<float> head;
    double shared = 0;
    for (auto const& p : parameters_of(head))
        if (p.shape.size() == 2) shared += 2.0 * static_cast<double>(p.value.size());
    auto const counted = margin{}.flops({head.D, head.L});
    BOOST_TEST(counted.shared == shared);
    BOOST_TEST(counted.trained == 0);
    BOOST_TEST(counted.drawn == 0);
}
