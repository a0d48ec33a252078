#include "calm/sample/temperature.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "support/fixtures.hpp"

using calm::token_id;

namespace {

std::string thrown_by(auto&& call) {
    try {
        call();
    } catch (calm::error const& thrown) {
        BOOST_TEST((thrown.code() == calm::errc::usage));
        return thrown.what();
    }
    return {};
}

bool holds(std::string const& text, std::string const& fragment) {
    return text.find(fragment) != std::string::npos;
}

// Probability that a chi-square of `freedom` degrees is larger.
double chi_square_tail(double chi2, int freedom) {
    double const half = chi2 / 2;
    double tail = freedom % 2 == 0 ? 0.0 : std::erfc(std::sqrt(half));
    for (double power = freedom % 2 == 0 ? 0.0 : 0.5; power < freedom / 2.0; power += 1.0)
        tail += std::exp(power * std::log(half) - half - std::lgamma(power + 1.0));
    return tail;
}

// p of observed counts; classes of less than 5 expected are taken together, impossible ones must be empty.
double p_value(std::vector<double> const& odds, std::vector<std::int64_t> const& seen) {
    double draws = 0;
    for (auto const n : seen) draws += static_cast<double>(n);
    double chi2 = 0;
    double rare = 0;
    double rare_seen = 0;
    int classes = 0;
    auto const add = [&](double expected, double found) {
        chi2 += (found - expected) * (found - expected) / expected;
        ++classes;
    };
    for (std::size_t i = 0; i < odds.size(); ++i) {
        auto const found = static_cast<double>(seen[i]);
        if (odds[i] == 0.0 && found > 0) return 0.0;
        if (odds[i] * draws >= 5) {
            add(odds[i] * draws, found);
        } else {
            rare += odds[i] * draws;
            rare_seen += found;
        }
    }
    if (rare > 0) add(rare, rare_seen);
    return classes < 2 ? 1.0 : chi_square_tail(chi2, classes - 1);
}

struct batch_case {
    std::vector<std::int64_t> counts;
    std::int64_t n;
    std::vector<double> odds;
};

std::vector<batch_case> batch_cases() {
    simdjson::dom::parser parser;
    std::vector<batch_case> cases;
    auto const file = parser.load((calm::test::fixtures_folder() / "sampler.json").string());
    for (simdjson::dom::element const one : file["batch"].get_array()) {
        batch_case made;
        made.n = one["n"].get_int64();
        for (auto const [patch, count] : one["counts"].get_object()) {
            made.counts.push_back(count.get_int64());
            double odds = 0.0;
            if (one["probability"][patch].get(odds)) odds = 0.0;
            made.odds.push_back(odds);
        }
        cases.push_back(made);
    }
    return cases;
}

// A shuffled pool of patches of K = 3 tokens that differ in any one place; patch i is named by place and value.
std::vector<token_id> pool_of(std::vector<std::int64_t> const& counts, calm::random_sequence& random) {
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < counts.size(); ++i) which.insert(which.end(), static_cast<std::size_t>(counts[i]), i);
    for (std::size_t i = which.size(); i > 1; --i)
        std::swap(which[i - 1], which[random.below(static_cast<std::uint32_t>(i))]);
    std::vector<token_id> pool(which.size() * 3, 7);
    for (std::size_t i = 0; i < which.size(); ++i) pool[3 * i + which[i] % 3] = static_cast<token_id>(100 + which[i]);
    return pool;
}

std::size_t name_of(std::vector<token_id> const& pool, std::size_t at) {
    for (std::size_t k = 0; k < 3; ++k)
        if (pool[3 * at + k] != 7) return static_cast<std::size_t>(pool[3 * at + k] - 100);
    return 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(temperatures_are_decimals_or_one_over_n) {
    auto const half = calm::parse_temperature("0.5");
    BOOST_TEST(half.n == 2);
    BOOST_TEST(half.inverse == 2.0);
    for (int n = 1; n <= 1000; ++n) {
        auto const exact = calm::parse_temperature("1/" + std::to_string(n));
        BOOST_TEST(exact.n == n);
        BOOST_TEST(exact.inverse == n);
        BOOST_TEST(exact.value == 1.0 / n);
        BOOST_TEST(calm::temperature::of(1.0 / n).n == n);
    }
    BOOST_TEST(calm::parse_temperature("1").n == 1);
    BOOST_TEST(calm::parse_temperature("1e-1").n == 10);
    BOOST_TEST(calm::parse_temperature("0.4").n == 0);
    BOOST_TEST(calm::parse_temperature("0.4").inverse == 2.5);
    BOOST_TEST(calm::parse_temperature("0.333333333").n == 3);  // 1/T - 3 = 3e-9
    BOOST_TEST(calm::parse_temperature("0.3333").n == 0);       // 1/T - 3 = 3e-4
    BOOST_TEST(calm::parse_temperature("0.49999978").n == 2);   // 8.8e-7 away
    BOOST_TEST(calm::parse_temperature("0.49999974").n == 0);   // 1.04e-6 away
    BOOST_TEST(calm::parse_temperature("1.5").n == 0);
    BOOST_TEST(calm::parse_temperature("1e9").n == 0);
    BOOST_TEST(calm::parse_temperature("0").n == 0);
    BOOST_TEST(std::isinf(calm::parse_temperature("0").inverse));
    BOOST_TEST(std::isfinite(calm::parse_temperature("1e-300").inverse));
}

BOOST_AUTO_TEST_CASE(what_is_no_temperature_is_a_sentence) {
    for (char const* const text : {"", "half", "1/", "1/0", "1/-2", "1/2.5", "0.5x", "1/2x", " 0.5", "+0.5", "/2",
                                   "1//2", "1/99999999999999999999", "0x1", "1e999"})
        BOOST_TEST(holds(thrown_by([&] { (void)calm::parse_temperature(text); }), "expected a decimal of at least 0"),
                   text);
    BOOST_TEST(
        holds(thrown_by([] { (void)calm::parse_temperature("2/3"); }), "numerator is not 1; write it as a decimal"));
    BOOST_TEST(holds(thrown_by([] { (void)calm::parse_temperature("-1"); }), "negative or not finite"));
    BOOST_TEST(holds(thrown_by([] { (void)calm::parse_temperature("nan"); }), "negative or not finite"));
    BOOST_TEST(holds(thrown_by([] { (void)calm::parse_temperature("inf"); }), "negative or not finite"));
    BOOST_TEST(holds(thrown_by([] { (void)calm::temperature::of(-0.5); }), "at least 0, or 1/n, found -0.5"));
}

BOOST_AUTO_TEST_CASE(the_batch_rule_refuses_other_temperatures_and_names_the_two_nearest) {
    auto const refusal = [](double T) {
        return thrown_by([&] { (void)calm::batch_sampler::at(calm::temperature::of(T)); });
    };
    BOOST_TEST(holds(refusal(0.4), "needs T = 1/n with an integer n, found T = 0.4; take 1/2 (0.5) or 1/3 (0.333333)"));
    BOOST_TEST(holds(refusal(0.7), "take 1/1 (1) or 1/2 (0.5)"));
    BOOST_TEST(holds(refusal(1.5), "take 1/1 (1) or 1/2 (0.5)"));
    BOOST_TEST(holds(refusal(0.0), "found T = 0"));
    BOOST_TEST(refusal(1.0).empty());
    BOOST_TEST(calm::integer_inverse(calm::temperature::of(0.25)) == 4);
    BOOST_TEST(
        holds(thrown_by([] { (void)calm::batch_sampler::at(calm::temperature::of(0.5), 0); }), "at least 1 patch"));
}

BOOST_AUTO_TEST_CASE(odds_are_those_of_the_oracle, *calm::test::with_fixtures) {
    auto const cases = batch_cases();
    BOOST_TEST(cases.size() >= 28U);
    for (auto const& one : cases) {
        auto const odds = calm::batch_odds(one.counts, one.n);
        for (std::size_t i = 0; i < odds.size(); ++i) BOOST_TEST(std::abs(odds[i] - one.odds[i]) < 1e-9);
    }
}

BOOST_AUTO_TEST_CASE(choices_follow_the_odds_of_the_oracle, *calm::test::with_fixtures) {
    calm::random_sequence random(calm::key{.seed = 2024, .stream = calm::stream::choice});
    for (auto const& one : batch_cases()) {
        std::vector<std::int64_t> seen(one.counts.size(), 0);
        int const draws = one.counts.size() * static_cast<std::size_t>(one.counts.back()) > 100 ? 2000 : 20000;
        auto pool = pool_of(one.counts, random);
        for (int i = 0; i < draws; ++i) {
            if (i % 100 == 0) pool = pool_of(one.counts, random);
            ++seen[name_of(pool, calm::batch_choice(pool, 3, one.n, random))];
        }
        BOOST_TEST(p_value(one.odds, seen) > 1e-4, "n = " << one.n << ", " << one.counts.size() << " patches");
    }
}

BOOST_AUTO_TEST_CASE(odds_count_the_equal_subsets_of_the_pool) {
    calm::random_sequence random(calm::key{.seed = 8});
    for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> counts(1 + random.below(4));
        for (auto& count : counts) count = 1 + random.below(5);
        std::int64_t const n = 1 + random.below(4);
        std::vector<std::size_t> pool;
        for (std::size_t i = 0; i < counts.size(); ++i) pool.insert(pool.end(), static_cast<std::size_t>(counts[i]), i);
        std::vector<double> subsets(counts.size(), 0.0);
        double all = 0;
        for (auto m = n; m >= 1 && all == 0; --m)
            for (std::uint64_t bits = 0; bits < (1ULL << pool.size()); ++bits) {
                if (std::popcount(bits) != m) continue;
                auto const first = static_cast<std::size_t>(std::countr_zero(bits));
                bool equal = true;
                for (std::size_t i = first; i < pool.size(); ++i)
                    equal = equal && ((bits >> i & 1U) == 0 || pool[i] == pool[first]);
                if (!equal) continue;
                ++subsets[pool[first]];
                ++all;
            }
        auto const odds = calm::batch_odds(counts, n);
        for (std::size_t i = 0; i < odds.size(); ++i) BOOST_TEST(std::abs(odds[i] - subsets[i] / all) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(odds_tend_to_the_law_of_the_temperature) {
    std::vector<double> const P{0.5, 0.3, 0.15, 0.05};
    for (std::int64_t const n : {2, 3, 5, 50}) {
        std::vector<std::int64_t> counts;
        double sum = 0;
        for (double const p : P) {
            counts.push_back(std::llround(p * 1e9));
            sum += std::pow(p, static_cast<double>(n));
        }
        auto const odds = calm::batch_odds(counts, n);
        for (std::size_t i = 0; i < P.size(); ++i)
            BOOST_TEST(std::abs(odds[i] - std::pow(P[i], static_cast<double>(n)) / sum) < 1e-5);
    }
}

BOOST_AUTO_TEST_CASE(large_pools_do_not_overflow) {
    for (std::int64_t const n : {2, 100, 10'000, 49'999, 50'000, 100'000}) {
        std::vector<std::int64_t> const counts{50'000, 49'999, 1};
        auto const odds = calm::batch_odds(counts, n);
        BOOST_TEST(odds[0] + odds[1] + odds[2] == 1.0, boost::test_tools::tolerance(1e-12));
        // C(49999, m) / C(50000, m) = (50000 - m) / 50000, m = min(n, 50000)
        auto const ratio = static_cast<double>(50'000 - std::min<std::int64_t>(n, 50'000)) / 50'000;
        BOOST_TEST(std::abs(odds[0] - 1.0 / (1.0 + ratio)) < 1e-9);
        BOOST_TEST(odds[2] == 0.0);
    }
    calm::random_sequence random(calm::key{.seed = 1});
    std::vector<token_id> pool(4 * 100'000);
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = i % 4 == 0 ? static_cast<token_id>(i / 4 % 90'000) : 0;
    auto const chosen = calm::batch_choice(pool, 4, 3, random);
    BOOST_TEST(pool[4 * chosen] < 10'000);  // the patches that stand in it twice
    BOOST_TEST(chosen < 10'000U);           // named by their first copy
}

BOOST_AUTO_TEST_CASE(a_pool_is_counted_in_the_order_of_appearance) {
    std::vector<token_id> const pool{5, 1, 2, 2, 5, 1, 5, 0, 2, 2, 5, 1};
    auto const distinct = calm::count_patches(pool, 2);
    BOOST_TEST(distinct.first == (std::vector<std::size_t>{0, 1, 3}), boost::test_tools::per_element());
    BOOST_TEST(distinct.counts == (std::vector<std::int64_t>{3, 2, 1}), boost::test_tools::per_element());
    BOOST_TEST(holds(thrown_by([&] { (void)calm::count_patches(pool, 5); }), "at least one patch of K tokens"));
    BOOST_TEST(holds(thrown_by([] { (void)calm::count_patches({}, 2); }), "at least one patch of K tokens"));
    BOOST_TEST(holds(thrown_by([] { (void)calm::batch_odds(std::vector<std::int64_t>{1}, 0); }), "n of at least 1"));
    BOOST_TEST(
        holds(thrown_by([] { (void)calm::batch_odds(std::vector<std::int64_t>{0}, 1); }), "count of at least 1"));
}

BOOST_AUTO_TEST_CASE(a_choice_uses_two_words_whatever_the_pool) {
    for (std::size_t const size : {1U, 2U, 50U}) {
        calm::random_sequence random(calm::key{.seed = 9});
        calm::random_sequence beside(calm::key{.seed = 9});
        std::vector<token_id> const pool(size * 2, 3);
        BOOST_TEST(calm::batch_choice(pool, 2, 2, random) == 0U);
        (void)beside.next();
        (void)beside.next();
        BOOST_TEST(random.next() == beside.next());
    }
}

BOOST_AUTO_TEST_CASE(the_batch_sampler_draws_one_pool) {
    calm::random_sequence source(calm::key{.seed = 10});
    calm::random_sequence choice(calm::key{.seed = 10, .stream = calm::stream::choice});
    std::vector<std::size_t> asked;
    auto const draw = [&](std::span<token_id> out) {  // patches {0, 0} and {1, 1} with 0.7 and 0.3
        asked.push_back(out.size() / 2);
        for (std::size_t i = 0; i < out.size(); i += 2) out[i] = out[i + 1] = source.uniform() < 0.7F ? 0 : 1;
    };
    std::vector<token_id> patch(2);
    auto const one = calm::batch_sampler::at(calm::temperature::of(1.0))(draw, patch, choice);
    BOOST_TEST(one.draws == 1);
    BOOST_TEST(asked.back() == 1U);
    auto const sampler = calm::batch_sampler::at(calm::temperature::of(0.5), 400);
    std::int64_t ones = 0;
    constexpr int rounds = 2000;
    for (int i = 0; i < rounds; ++i) {
        auto const done = sampler(draw, patch, choice);
        BOOST_REQUIRE(done.draws == 400);
        BOOST_REQUIRE(!done.capped);
        BOOST_REQUIRE(patch[0] == patch[1]);
        ones += patch[0];
    }
    BOOST_TEST(asked.back() == 400U);
    double const p = 0.09 / (0.49 + 0.09);  // the law; a pool of 400 is within 0.002 of it
    BOOST_TEST(std::abs(static_cast<double>(ones) / rounds - p) < 4 * std::sqrt(p * (1 - p) / rounds) + 0.002);
}

BOOST_AUTO_TEST_CASE(tails_of_chi_square_are_known_values) {
    BOOST_TEST(chi_square_tail(3.841458820694124, 1) == 0.05, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(chi_square_tail(5.991464547107979, 2) == 0.05, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(chi_square_tail(7.814727903251179, 3) == 0.05, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(chi_square_tail(9.487729036781154, 4) == 0.05, boost::test_tools::tolerance(1e-9));
}
