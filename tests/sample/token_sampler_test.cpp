// The distribution of the next token against closed forms, and the frequencies of its draws.
#include "calm/sample/token_sampler.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// Logits of probabilities, shifted by a constant that does not matter.
std::vector<float> logits_of(std::vector<double> const& p) {
    std::vector<float> all;
    for (double const one : p) all.push_back(static_cast<float>(std::log(one) + 3));
    return all;
}

std::vector<double> law_of(std::vector<double> const& p, token_sampler const& rule) {
    auto const logits = logits_of(p);
    categorical_distribution distribution;
    distribution.set(std::span(logits), rule);
    std::vector<double> all;
    for (std::size_t i = 0; i < p.size(); ++i) all.push_back(distribution.probability(static_cast<token_id>(i)));
    return all;
}

void check_law(std::vector<double> const& got, std::vector<double> const& want) {
    BOOST_REQUIRE_EQUAL(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(std::abs(got[i] - want[i]) < 1e-6, i << ": " << got[i]);
}

}  // namespace

BOOST_AUTO_TEST_CASE(distributions_match_the_definition) {
    std::vector<double> const p{0.1, 0.4, 0.2, 0.3};
    check_law(law_of(p, {}), p);
    // P^2, normalised.
    check_law(law_of(p, {.T = 0.5}), {0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
    check_law(law_of(p, {.T = 2}), [&] {
        std::vector<double> roots;
        double total = 0;
        for (double const one : p) total += std::sqrt(one);
        for (double const one : p) roots.push_back(std::sqrt(one) / total);
        return roots;
    }());
    check_law(law_of(p, {.top_k = 2}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
    check_law(law_of(p, {.top_k = 9}), p);
    // 0.4 alone is below 0.5, with 0.3 it is above.
    check_law(law_of(p, {.top_p = 0.5}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
    check_law(law_of(p, {.top_p = 1e-9}), {0, 1, 0, 0});
    // Among the top k: 0.4 / 0.9 is below 0.6, with 0.3 it is above.
    check_law(law_of(p, {.top_k = 3, .top_p = 0.6}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
    // Temperature first: the top token's share of P^2, 0.16 / 0.3, is more than a half.
    check_law(law_of(p, {.T = 0.5, .top_p = 0.5}), {0, 1, 0, 0});
}

BOOST_AUTO_TEST_CASE(of_equally_likely_tokens_the_lower_id_comes_first) {
    std::vector<double> const p{0.1, 0.3, 0.3, 0.3};
    check_law(law_of(p, {.T = 0}), {0, 1, 0, 0});
    check_law(law_of(p, {.top_k = 2}), {0, 0.5, 0.5, 0});
    check_law(law_of(p, {.T = 0, .top_k = 3, .top_p = 0.9}), {0, 1, 0, 0});
}

BOOST_AUTO_TEST_CASE(the_collision_is_the_sum_of_the_squares) {
    auto const logits = logits_of({0.1, 0.4, 0.2, 0.3});
    categorical_distribution distribution;
    distribution.set(std::span(logits), {});
    BOOST_TEST(distribution.collision() == 0.01 + 0.16 + 0.04 + 0.09, boost::test_tools::tolerance(1e-6));
    distribution.set(std::span(logits).first(1), {});  // another vocabulary size
    BOOST_TEST(distribution.collision() == 1);
}

// 200,000 draws: every frequency within five standard errors, one false alarm in a million runs.
BOOST_AUTO_TEST_CASE(draws_follow_the_distribution) {
    auto const logits = logits_of({0.1, 0.4, 0.2, 0.3});
    for (auto const& rule : {token_sampler{}, token_sampler{.T = 0.5}, token_sampler{.top_k = 3, .top_p = 0.95}}) {
        categorical_distribution distribution;
        distribution.set(std::span(logits), rule);
        random_sequence random({7, stream::choice, 0});
        constexpr int n = 200'000;
        std::array<int, 4> counts{};
        for (int i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(distribution.draw(random.uniform_double()))];
        for (token_id id = 0; id < 4; ++id) {
            double const p = distribution.probability(id);
            double const error = std::sqrt(p * (1 - p) / n);
            BOOST_TEST(std::abs(counts[static_cast<std::size_t>(id)] / double(n) - p) <= 5 * error, id);
        }
    }
}

BOOST_AUTO_TEST_CASE(large_logits_are_no_overflow_and_far_ones_no_chance) {
    std::vector<float> const logits{1e30F, -1e30F, 1e30F};
    categorical_distribution distribution;
    distribution.set(std::span(logits), {});
    BOOST_TEST(distribution.probability(0) == 0.5);
    BOOST_TEST(distribution.probability(1) == 0);
    BOOST_TEST(distribution.draw(0.9999999) == 2);
    distribution.set(std::span(logits), {.T = 1e-300});
    BOOST_TEST(distribution.probability(2) == 0.5);
}

BOOST_AUTO_TEST_CASE(invalid_settings_are_refused) {
    BOOST_CHECK_EXCEPTION(token_sampler::of(temperature::of(1), -1), error,
                          says(errc::usage, "expected top-k of at least 1, or 0 for all tokens, found -1"));
    for (double const p : {0.0, -0.5, 1.5})
        BOOST_CHECK_EXCEPTION(token_sampler::of(temperature::of(1), 0, p), error,
                              says(errc::usage, "expected top-p above 0 and at most 1"));
    for (double const T : {1e-101, 1001.0})
        BOOST_CHECK_EXCEPTION(token_sampler::of({.value = T}), error,
                              says(errc::usage, "exact probabilities need T = 0, or from 1e-100 to 1000"));
    categorical_distribution distribution;
    std::vector<float> logits{0, std::numeric_limits<float>::quiet_NaN(), 1};
    for (double const T : {1.0, 0.0})
        BOOST_CHECK_EXCEPTION(distribution.set(std::span<float const>(logits), {.T = T}), error,
                              says(errc::non_finite, "expected finite logits"));
    logits[1] = std::numeric_limits<float>::infinity();
    BOOST_CHECK_EXCEPTION(distribution.set(std::span<float const>(logits), {}), error,
                          says(errc::non_finite, "expected finite logits"));
    BOOST_CHECK_EXCEPTION(distribution.set(std::span<float const>(), {}), error,
                          says(errc::usage, "expected logits, found none"));
}
