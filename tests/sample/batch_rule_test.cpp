#include "calm/sample/detail/batch_rule.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/statistics.hpp"

using calm::token_id;
using calm::test::chi_square_tail;
using calm::test::p_value;

using calm::test::has;
using calm::test::usage_sentence;

namespace {

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

// A shuffled pool of patches of K = 3 tokens; patch i differs from the others by its token 100 + i.
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

BOOST_AUTO_TEST_CASE(odds_match_the_reference) {
    auto const cases = batch_cases();
    BOOST_TEST(cases.size() >= 28U);
    for (auto const& one : cases) {
        auto const odds = calm::batch_odds(one.counts, one.n);
        for (std::size_t i = 0; i < odds.size(); ++i) BOOST_TEST(std::abs(odds[i] - one.odds[i]) < 1e-9);
    }
}

BOOST_AUTO_TEST_CASE(choices_follow_the_odds_of_the_reference) {
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
    BOOST_TEST(pool[4 * chosen] < 10'000);  // a patch that occurs twice
    BOOST_TEST(chosen < 10'000U);           // given as its first copy
}

BOOST_AUTO_TEST_CASE(a_pool_is_counted_in_the_order_of_appearance) {
    std::vector<token_id> const pool{5, 1, 2, 2, 5, 1, 5, 0, 2, 2, 5, 1};
    auto const distinct = calm::count_patches(pool, 2);
    BOOST_TEST(distinct.first == (std::vector<std::size_t>{0, 1, 3}), boost::test_tools::per_element());
    BOOST_TEST(distinct.counts == (std::vector<std::int64_t>{3, 2, 1}), boost::test_tools::per_element());
    BOOST_TEST(has(usage_sentence([&] { (void)calm::count_patches(pool, 5); }), "at least one patch of K tokens"));
    BOOST_TEST(has(usage_sentence([] { (void)calm::count_patches({}, 2); }), "at least one patch of K tokens"));
    BOOST_TEST(has(usage_sentence([] { (void)calm::batch_odds(std::vector<std::int64_t>{1}, 0); }), "n of at least 1"));
    BOOST_TEST(
        has(usage_sentence([] { (void)calm::batch_odds(std::vector<std::int64_t>{0}, 1); }), "count of at least 1"));
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

BOOST_AUTO_TEST_CASE(tails_of_chi_square_are_known_values) {
    BOOST_TEST(chi_square_tail(3.841458820694124, 1) == 0.05, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(chi_square_tail(5.991464547107979, 2) == 0.05, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(chi_square_tail(7.814727903251179, 3) == 0.05, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(chi_square_tail(9.487729036781154, 4) == 0.05, boost::test_tools::tolerance(1e-9));
}

namespace {

// Collects the choice for every completion of a pool by `left` more draws. Each draw repeats an earlier patch or adds a
// new one.
void every_end(std::vector<token_id>& pool, std::int64_t left, std::int64_t n, double point,
               std::vector<token_id>& chosen) {
    if (left == 0) {
        chosen.push_back(pool[calm::batch_choice(pool, 1, n, point)]);
        return;
    }
    token_id const kinds = *std::max_element(pool.begin(), pool.end()) + 1;
    for (token_id next = 0; next <= kinds; ++next) {
        pool.push_back(next);
        every_end(pool, left - 1, n, point, chosen);
        pool.pop_back();
    }
}

// A pool of one-token patches, numbered in order of first appearance.
std::vector<token_id> random_pool(std::size_t draws, calm::random_sequence& random) {
    std::vector<token_id> pool{0};
    while (pool.size() < draws) {
        token_id const kinds = *std::max_element(pool.begin(), pool.end()) + 1;
        auto const next = static_cast<token_id>(random.below(5));
        pool.push_back(next > 2 ? 0 : std::min(next, kinds));
    }
    return pool;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_forecast_is_sure_where_every_end_of_the_pool_agrees) {
    calm::random_sequence random(calm::key{.seed = 31});
    int sure = 0, open = 0;
    for (int round = 0; round < 3000; ++round) {
        auto pool = random_pool(1 + random.below(9), random);
        std::int64_t const n = 1 + random.below(3), left = 1 + random.below(3);
        double const point = (random.below(1000) + 0.5) / 1000;
        std::vector<token_id> chosen;
        every_end(pool, left, n, point, chosen);
        bool const agree = std::all_of(chosen.begin(), chosen.end(), [&](token_id one) { return one == chosen[0]; });
        auto const counts = calm::count_patches(pool, 1).counts;
        auto const choice = calm::batch_forecast(counts, n, left, point).choice();
        if (choice) BOOST_TEST((agree && static_cast<token_id>(*choice) == chosen[0]));
        // It considers only level n, and decides nothing for pools that may not reach it.
        if (agree && counts[static_cast<std::size_t>(chosen[0])] >= n) BOOST_TEST(choice.has_value());
        ++(choice ? sure : open);
    }
    BOOST_TEST(sure > 500);
    BOOST_TEST(open > 500);
}

BOOST_AUTO_TEST_CASE(a_forecast_knows_how_many_draws_it_takes_at_least) {
    calm::random_sequence random(calm::key{.seed = 32});
    for (int round = 0; round < 1000; ++round) {
        auto const pool = random_pool(1 + random.below(9), random);
        std::int64_t const n = 1 + random.below(3), left = 1 + random.below(20);
        double const point = (random.below(1000) + 0.5) / 1000;
        auto const counts = calm::count_patches(pool, 1).counts;
        auto const least = calm::batch_forecast(counts, n, left, point).draws_needed();
        // The quickest way is to repeat one patch, an earlier or a new one.
        std::int64_t shortest = left;
        for (std::size_t i = 0; i <= counts.size(); ++i)
            for (std::int64_t more = 0; more < shortest; ++more) {
                auto after = counts;
                if (i == after.size() && more > 0) after.push_back(0);
                if (more > 0) after[i] += more;
                if (calm::batch_forecast(after, n, left - more, point).choice()) shortest = more;
            }
        BOOST_TEST(least == shortest);
    }
}
