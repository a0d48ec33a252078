#include "calm/sample/sampler.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/statistics.hpp"

using namespace calm;
using calm::test::p_value;

using calm::test::has;
using calm::test::usage_sentence;

namespace {

// Patches of K = 2 tokens: patch i has probability p[i], and all have the same first token.
class toy {
public:
    toy(std::vector<double> p, std::uint64_t seed) : p_(std::move(p)), random_({.seed = seed}) {}

    void operator()(std::span<token_id> out) {
        for (std::size_t i = 0; i < out.size(); i += 2) {
            out[i] = 7;
            out[i + 1] = static_cast<token_id>(detail::pick(p_, random_.uniform_double()));
        }
    }

private:
    std::vector<double> p_;
    random_sequence random_;
};

struct tally {
    std::vector<std::int64_t> seen;
    double mean_draws = 0;
    double error = 0;  // standard error of mean_draws
    std::int64_t capped = 0;
};

// Samples until the mean number of draws is known to a relative precision.
tally sample_often(sampler const& rule, std::vector<double> const& p, int times, std::uint64_t seed,
                   double precision = 1) {
    toy source(p, seed);
    random_sequence choice({.seed = seed, .stream = stream::choice});
    tally all{.seen = std::vector<std::int64_t>(p.size(), 0)};
    std::vector<token_id> patch(2);
    double sum = 0, squares = 0, count = 0;
    do {
        for (int i = 0; i < times; ++i) {
            auto const took = sample_patch(rule, source, patch, choice);
            BOOST_REQUIRE(patch[0] == 7);
            ++all.seen[static_cast<std::size_t>(patch[1])];
            all.capped += took.capped ? 1 : 0;
            sum += static_cast<double>(took.draws);
            squares += static_cast<double>(took.draws) * static_cast<double>(took.draws);
        }
        count += times;
        all.mean_draws = sum / count;
        all.error = std::sqrt(std::max(0.0, squares / count - all.mean_draws * all.mean_draws) / count);
    } while (all.error > precision * all.mean_draws);
    return all;
}

std::vector<double> powers(std::vector<double> const& p, double exponent) {
    std::vector<double> distribution;
    for (double const one : p) distribution.push_back(std::pow(one, exponent));
    double const sum = std::accumulate(distribution.begin(), distribution.end(), 0.0);
    for (double& one : distribution) one /= sum;
    return distribution;
}
double sum_of_powers(std::vector<double> const& p, double exponent) {
    double sum = 0;
    for (double const one : p) sum += std::pow(one, exponent);
    return sum;
}

struct exact_case {
    std::vector<double> p;
    temperature T;
    std::vector<double> distribution;
    double draws;
};

std::vector<exact_case> exact_cases() {
    simdjson::dom::parser parser;
    std::vector<exact_case> cases;
    auto const file = parser.load((test::fixtures_folder() / "sampler.json").string());
    auto const list = [](simdjson::dom::element const& all) {
        std::vector<double> values;
        for (double const value : all.get_array()) values.push_back(value);
        return values;
    };
    for (simdjson::dom::element const one : file["exact"].get_array())
        cases.push_back({list(one["p"]), temperature::of(one["T"].get_double()), list(one["probability"]),
                         one["expected_draws"].get_double()});
    return cases;
}

// The distribution of the adaptive rule for patches of probabilities p, by enumerating all sequences of N draws.
std::vector<double> enumerated(std::vector<double> const& p, std::size_t n, std::size_t N, double& mean_draws) {
    std::vector<double> distribution(p.size(), 0.0);
    mean_draws = 0;
    std::vector<std::size_t> draws(N, 0);
    while (true) {
        double odds = 1;
        for (auto const one : draws) odds *= p[one];
        std::size_t used = N;
        for (std::size_t at = 0; at + n <= N && used == N; at += n) {
            bool equal = true;
            for (std::size_t i = 1; i < n; ++i) equal = equal && draws[at + i] == draws[at];
            if (!equal) continue;
            distribution[draws[at]] += odds;
            used = at + n;
            break;
        }
        bool answered = false;
        for (std::size_t at = 0; at + n <= N; at += n) {
            bool equal = true;
            for (std::size_t i = 1; i < n; ++i) equal = equal && draws[at + i] == draws[at];
            answered = answered || equal;
        }
        mean_draws += odds * static_cast<double>(used);
        if (!answered) {
            std::map<std::size_t, std::int64_t> counts;
            for (auto const one : draws) ++counts[one];
            std::vector<std::int64_t> list;
            for (auto const& [one, count] : counts) list.push_back(count);
            auto const chosen = batch_odds(list, static_cast<std::int64_t>(n));
            std::size_t i = 0;
            for (auto const& [one, count] : counts) distribution[one] += odds * chosen[i++];
        }
        std::size_t place = 0;
        while (place < N && ++draws[place] == p.size()) draws[place++] = 0;
        if (place == N) return distribution;
    }
}

// The distribution of the capped exact rule for patches of probabilities p, by the tree of all draws and coin flips.
struct capped_law {
    std::vector<double> p;
    int n;        // draws per attempt, which must be equal
    double rest;  // then draw k must be the patch, or the attempt fails with probability rest / k
    int cap;
    std::vector<double> distribution = std::vector<double>(p.size(), 0.0);
    double capped = 0;
    double mean_draws = 0;

    capped_law(std::vector<double> odds, double T, int most) :
        p(std::move(odds)), n(static_cast<int>(1 / T + 1e-9)), rest(1 / T - n < 1e-9 ? 0 : 1 / T - n), cap(most) {
        std::vector<std::size_t> none;
        attempt(none, 0, 1.0);
    }

private:
    // The draws from `begin` on belong to this attempt.
    void attempt(std::vector<std::size_t>& draws, std::size_t begin, double odds) {
        for (std::size_t one = 0; one < p.size(); ++one) {
            draws.push_back(one);
            double const here = odds * p[one];
            bool const whole = draws.size() - begin == static_cast<std::size_t>(n);
            bool const equal = std::all_of(draws.begin() + static_cast<std::ptrdiff_t>(begin), draws.end(),
                                           [&](std::size_t other) { return other == draws[begin]; });
            if (whole && equal && rest == 0)
                answer(draws[begin], draws, here);
            else if (at_cap(draws, here))
                ;
            else if (whole && equal)
                prove(draws, draws[begin], 1, here);
            else
                attempt(draws, whole ? draws.size() : begin, here);
            draws.pop_back();
        }
    }
    void prove(std::vector<std::size_t>& draws, std::size_t patch, int k, double odds) {
        for (std::size_t one = 0; one < p.size(); ++one) {
            draws.push_back(one);
            double const here = odds * p[one];
            if (one == patch) {
                answer(patch, draws, here);
            } else if (!at_cap(draws, here)) {
                attempt(draws, draws.size(), here * rest / k);
                if (rest < k) prove(draws, patch, k + 1, here * (1 - rest / k));
            }
            draws.pop_back();
        }
    }
    void answer(std::size_t patch, std::vector<std::size_t> const& draws, double odds) {
        distribution[patch] += odds;
        mean_draws += odds * static_cast<double>(draws.size());
    }
    // At the cap the batch rule answers. It takes the largest m <= n such that some patch was drawn at least m times,
    // and weights these patches by the ways to choose m of their copies.
    bool at_cap(std::vector<std::size_t> const& draws, double odds) {
        if (draws.size() < static_cast<std::size_t>(cap)) return false;
        std::vector<double> ways(p.size(), 0.0);
        for (int m = n; std::accumulate(ways.begin(), ways.end(), 0.0) == 0.0; --m)
            for (std::size_t i = 0; i < p.size(); ++i) {
                auto const copies = std::count(draws.begin(), draws.end(), i);
                ways[i] = 1;
                for (int j = 0; j < m; ++j) ways[i] *= static_cast<double>(copies - j) / (j + 1);
                if (copies < m) ways[i] = 0;
            }
        double const all = std::accumulate(ways.begin(), ways.end(), 0.0);
        for (std::size_t i = 0; i < p.size(); ++i) distribution[i] += odds * ways[i] / all;
        capped += odds;
        mean_draws += odds * cap;
        return true;
    }
};

std::vector<std::vector<double>> const toys{
    {0.5, 0.3, 0.15, 0.05}, {0.97, 0.01, 0.01, 0.01}, {0.25, 0.25, 0.25, 0.25}, {1.0}, {0.6, 0.4}};

}  // namespace

BOOST_AUTO_TEST_CASE(rules_take_the_temperatures_they_can_serve) {
    auto const at = [](double T) { return temperature::of(T); };
    BOOST_TEST(sampler{}.n == 2);
    BOOST_TEST((sampler{}.rule == sampling_rule::adaptive));
    for (auto const rule : {sampling_rule::adaptive, sampling_rule::batch}) {
        BOOST_TEST(sampler::of(rule, at(0.25), 50).n == 4);
        BOOST_TEST(sampler::of(rule, at(0.25), 50).max_draws == 50);
        BOOST_TEST(has(usage_sentence([&] { (void)sampler::of(rule, at(0.4)); }), "take 1/2 (0.5) or 1/3 (0.333333)"));
        BOOST_TEST(has(usage_sentence([&] { (void)sampler::of(rule, at(1.5)); }), "take 1/1 (1) or 1/2 (0.5)"));
        BOOST_TEST(has(usage_sentence([&] { (void)sampler::of(rule, at(0.5), 0); }), "at least 1 patch"));
    }
    BOOST_TEST(sampler::exact(at(0.4)).n == 2);
    BOOST_TEST(sampler::exact(at(0.4)).fraction == 0.5, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(sampler::exact(at(0.7)).n == 1);
    BOOST_TEST(sampler::exact(at(0.333333333)).n == 3);
    BOOST_TEST(sampler::exact(at(0.333333333)).fraction == 0.0);
    BOOST_TEST(sampler::exact(at(0.5)).max_draws == 100'000);
    BOOST_TEST(sampler::exact(at(1e-300)).n > 100'000);
    for (double const T : {0.0, 1.01, 2.0})
        BOOST_TEST(has(usage_sentence([&] { (void)sampler::exact(at(T)); }), "above 0 and at most 1"));
    BOOST_TEST(sampler::noise(at(0.25)).noise_scale == 0.5);
    BOOST_TEST(sampler::noise(at(0)).noise_scale == 0.0);
    BOOST_TEST(sampler::noise(at(4)).noise_scale == 2.0);
    BOOST_TEST(sampler::noise(at(4)).max_draws == 1);
    for (auto const rule : {sampling_rule::adaptive, sampling_rule::batch, sampling_rule::exact})
        BOOST_TEST(sampler::of(rule, at(0.5)).noise_scale == 1.0);
}

BOOST_AUTO_TEST_CASE(the_exact_rule_has_the_law_and_the_draws_of_the_reference) {
    auto const cases = exact_cases();
    BOOST_TEST(cases.size() >= 40U);
    std::uint64_t seed = 100;
    for (auto const& one : cases) {
        auto const rule = sampler::exact(one.T);
        auto const got = sample_often(rule, one.p, 10000, ++seed, 0.005);
        BOOST_TEST(p_value(one.distribution, got.seen) > 1e-4,
                   "T = " << one.T.value << ", " << one.p.size() << " patches");
        BOOST_TEST(got.mean_draws == one.draws, boost::test_tools::tolerance(0.02));
        BOOST_TEST(got.capped == 0);
    }
}

BOOST_AUTO_TEST_CASE(the_exact_rule_counts_draws_by_the_formula) {
    std::uint64_t seed = 200;
    for (auto const& p : toys)
        for (double const T : {1.0, 0.9, 0.7, 0.5, 0.4, 0.35}) {
            auto const rule = sampler::exact(temperature::of(T));
            double const inverse = 1 / T;
            double const proofs = rule.fraction > 0 ? sum_of_powers(p, inverse - 1) : 0.0;
            double const draws = (static_cast<double>(rule.n) + proofs) / sum_of_powers(p, inverse);
            auto const got = sample_often(rule, p, 10000, ++seed, 0.005);
            BOOST_TEST(got.mean_draws == draws, boost::test_tools::tolerance(0.02));
            BOOST_TEST(p_value(powers(p, inverse), got.seen) > 1e-4, "T = " << T);
        }
}

BOOST_AUTO_TEST_CASE(the_adaptive_rule_counts_draws_by_the_formula) {
    std::uint64_t seed = 300;
    for (auto const& p : toys)
        for (std::int64_t const n : {1, 2, 3, 4})
            for (std::int64_t const N : {12, 200}) {
                auto const attempts = static_cast<double>(N / n);
                double const hit = sum_of_powers(p, static_cast<double>(n));
                double const fails = std::pow(1 - hit, attempts);
                double const draws = static_cast<double>(n) * (1 - fails) / hit + fails * static_cast<double>(N % n);
                auto const rule = sampler::adaptive(temperature::of(1.0 / static_cast<double>(n)), N);
                auto const got = sample_often(rule, p, 10000, ++seed, 0.005);
                BOOST_TEST(got.mean_draws == draws, boost::test_tools::tolerance(0.02));
                BOOST_TEST(got.capped == 0);
                // With probability `fails`, the answer follows the batch rule on unlucky pools instead.
                if (fails < 1e-6) BOOST_TEST(p_value(powers(p, static_cast<double>(n)), got.seen) > 1e-4, "n = " << n);
            }
}

BOOST_AUTO_TEST_CASE(the_adaptive_distribution_matches_the_enumeration_of_pools) {
    std::uint64_t seed = 400;
    for (auto const& p : std::vector<std::vector<double>>{{0.6, 0.4}, {0.5, 0.3, 0.2}, {0.1, 0.2, 0.3, 0.4}})
        for (std::size_t const n : {1U, 2U, 3U})
            for (std::size_t const N : {1U, 2U, 3U, 5U, 7U}) {
                double draws = 0;
                auto const distribution = enumerated(p, n, N, draws);
                BOOST_TEST(std::accumulate(distribution.begin(), distribution.end(), 0.0) == 1.0,
                           boost::test_tools::tolerance(1e-12));
                auto const rule =
                    sampler::adaptive(temperature::of(1.0 / static_cast<double>(n)), static_cast<std::int64_t>(N));
                auto const got = sample_often(rule, p, 10000, ++seed, 0.005);
                BOOST_TEST(p_value(distribution, got.seen) > 1e-4, "n = " << n << ", N = " << N);
                BOOST_TEST(got.mean_draws == draws, boost::test_tools::tolerance(0.02));
            }
}

BOOST_AUTO_TEST_CASE(rounds_change_neither_answers_nor_counts) {
    std::vector<double> const p{0.3, 0.25, 0.2, 0.15, 0.1};
    std::vector<sampler> rules{sampler::batch(temperature::of(0.5), 30), sampler::exact(temperature::of(0.5), 40)};
    for (double const T : {1.0, 0.5, 1.0 / 3}) rules.push_back(sampler::adaptive(temperature::of(T), 20));
    for (double const T : {1.0, 0.8, 0.5, 0.4, 0.3}) rules.push_back(sampler::exact(temperature::of(T)));
    for (auto const& rule : rules) {
        std::vector<std::vector<std::int64_t>> told;
        for (std::int64_t const round : {0, 1, 3, 8, 64, 1000}) {
            std::vector<std::int64_t> all;
            for (std::uint64_t patch = 0; patch < 200; ++patch) {
                // Draw d of a patch does not depend on the round in which it comes.
                std::uint64_t draw = 0;
                auto const source = [&](std::span<token_id> out) {
                    BOOST_REQUIRE(static_cast<std::int64_t>(draw + out.size()) <= rule.max_draws);
                    for (auto& token : out)
                        token = static_cast<token_id>(detail::pick(p, uniform({.seed = 5}, (patch << 32) + draw++)));
                };
                random_sequence choice({.seed = 6, .stream = stream::choice}, patch << 32);
                std::vector<token_id> answer(1);
                auto const took = sample_patch(rule, source, answer, choice, round);
                all.insert(all.end(), {answer[0], took.draws, took.capped ? 1 : 0});
            }
            told.push_back(all);
        }
        for (auto const& other : told) BOOST_TEST(other == told[0], boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(an_attempt_that_cannot_succeed_any_more_is_counted_whole) {
    random_sequence choice({.seed = 1});
    acceptance_sampler at_work(sampler::exact(temperature::of(1.0 / 3)), 1, choice);
    BOOST_TEST(at_work.draws_needed() == 3);
    at_work.take(std::vector<token_id>{1, 2}, choice);
    BOOST_TEST(at_work.draws_needed() == 1);
    at_work.take(std::vector<token_id>{2}, choice);
    BOOST_TEST(!at_work.decided());
    BOOST_TEST(at_work.draws_needed() == 3);
    at_work.take(std::vector<token_id>{4, 4, 4, 5, 5}, choice);
    BOOST_TEST(at_work.decided());
    BOOST_TEST(at_work.result().draws == 6);
    BOOST_TEST(at_work.patch()[0] == 4);
    BOOST_TEST(at_work.draws_needed() == 0);
    BOOST_TEST(at_work.draws_left() == 0);
}

BOOST_AUTO_TEST_CASE(the_exact_rule_stops_at_its_cap_and_reports_it) {
    auto const rule = sampler::exact(temperature::of(0.5));
    random_sequence choice({.seed = 3, .stream = stream::choice});
    std::vector<token_id> patch(1);
    std::int64_t drawn = 0;
    auto const alternating = [&](std::span<token_id> out) {
        for (auto& token : out) token = static_cast<token_id>(drawn++ % 2);
    };
    auto const took = sample_patch(rule, alternating, patch, choice);
    BOOST_TEST(took.draws == 100'000);
    BOOST_TEST(drawn == 100'000);
    BOOST_TEST(took.capped);
    // An attempt completed by the last draw is an answer.
    auto const last = [](std::span<token_id> out) { std::fill(out.begin(), out.end(), 3); };
    BOOST_TEST(!sample_patch(sampler::exact(temperature::of(0.25), 4), last, patch, choice).capped);
}

// The distribution, how often the cap is reached, and the counts. Each bound fails a correct sampler for one seed in a
// million.
BOOST_AUTO_TEST_CASE(a_capped_exact_rule_has_the_law_of_all_its_sequences) {
    constexpr int times = 100000;
    std::uint64_t seed = 500;
    for (auto const& p : std::vector<std::vector<double>>{{0.5, 0.3, 0.2}, {0.25, 0.25, 0.25, 0.25}, {0.9, 0.1}})
        for (auto const& [T, cap] :
             {std::pair(0.5, 1), {0.5, 2}, {0.5, 5}, {1.0 / 3, 7}, {0.4, 2}, {0.4, 3}, {0.4, 6}, {0.7, 4}}) {
            capped_law const want(p, T, cap);
            BOOST_TEST(std::accumulate(want.distribution.begin(), want.distribution.end(), 0.0) == 1.0,
                       boost::test_tools::tolerance(1e-12));
            auto const got = sample_often(sampler::exact(temperature::of(T), cap), p, times, ++seed);
            BOOST_TEST_CONTEXT("T = " << T << ", at most " << cap << " draws of " << p.size() << " patches") {
                BOOST_TEST(p_value(want.distribution, got.seen) > 1e-6);
                BOOST_TEST(p_value({want.capped, 1 - want.capped}, {got.capped, times - got.capped}) > 1e-6);
                BOOST_TEST(std::abs(got.mean_draws - want.mean_draws) <= 4.9 * got.error + 1e-12);
            }
        }
}

BOOST_AUTO_TEST_CASE(the_batch_sampler_counts_one_pool) {
    std::size_t asked = 0;
    toy source({0.7, 0.3}, 10);
    auto const draw = [&](std::span<token_id> out) {
        asked += out.size() / 2;
        source(out);
    };
    random_sequence choice({.seed = 10, .stream = stream::choice});
    std::vector<token_id> patch(2);
    BOOST_TEST(sample_patch(sampler::batch(temperature::of(1.0)), draw, patch, choice).draws == 1);
    BOOST_TEST(asked == 1U);
    auto const rule = sampler::batch(temperature::of(0.5), 400);
    std::int64_t ones = 0;
    constexpr int rounds = 2000;
    for (int i = 0; i < rounds; ++i) {
        asked = 0;
        BOOST_REQUIRE(sample_patch(rule, draw, patch, choice).draws == 400);
        BOOST_REQUIRE(asked <= 400U);
        ones += patch[1];
    }
    double const p = 0.09 / (0.49 + 0.09);  // exact; a pool of 400 is within 0.002 of it
    BOOST_TEST(std::abs(static_cast<double>(ones) / rounds - p) < 4 * std::sqrt(p * (1 - p) / rounds) + 0.002);
}

// The answer equals that of the whole pool, which is drawn only as long as its rest could change the answer.
BOOST_AUTO_TEST_CASE(the_batch_rule_stops_where_its_choice_is_sure) {
    for (auto const& p : toys)
        for (std::int64_t const n : {1, 2, 3, 50})
            for (std::int64_t const N : {2, 31, 200}) {
                auto rule = sampler::batch(temperature::of(1.0 / static_cast<double>(n)), N);
                rule.max_draws = N;  // at T = 1 too
                double drawn = 0;
                constexpr std::uint64_t patches = 40;
                for (std::uint64_t patch = 0; patch < patches; ++patch) {
                    toy whole(p, 1000 + patch), source(p, 1000 + patch);
                    std::vector<token_id> pool(static_cast<std::size_t>(2 * N)), answer(2);
                    whole(pool);
                    random_sequence choice({.seed = 6, .stream = stream::choice}, patch << 32), same = choice;
                    auto const want = batch_choice(pool, 2, n, same);
                    auto const draw = [&](std::span<token_id> out) {
                        drawn += static_cast<double>(out.size() / 2);
                        source(out);
                    };
                    BOOST_REQUIRE(sample_patch(rule, draw, answer, choice).draws == N);
                    BOOST_TEST(answer[1] == pool[2 * want + 1]);
                    BOOST_TEST(choice.next() == same.next());
                }
                // If all draws are equal, m draws decide for a uniform number below C(m, n) / (C(m, n) + C(N - m, n)):
                // N / 2 on average, by symmetry.
                if (p.size() == 1 && N == 200 && n == 2)
                    BOOST_TEST(std::abs(drawn / patches - 100) < 4 * 60 / std::sqrt(patches) + 16);
                BOOST_TEST(drawn <= static_cast<double>(N) * patches);
            }
}

BOOST_AUTO_TEST_CASE(the_noise_rule_takes_one_draw) {
    for (double const T : {0.0, 0.3, 1.0, 2.5}) {
        auto const got = sample_often(sampler::noise(temperature::of(T)), {0.5, 0.3, 0.2}, 5000, 12);
        BOOST_TEST(got.mean_draws == 1.0, boost::test_tools::tolerance(1e-9));
        BOOST_TEST(p_value({0.5, 0.3, 0.2}, got.seen) > 1e-4);
    }
}

BOOST_AUTO_TEST_CASE(noise_is_scaled_within_reason) {
    BOOST_TEST(sampler::noise(temperature::of(sampler::max_temperature)).noise_scale == std::sqrt(1000.0));
    for (double const T : {1000.5, 1e308})
        BOOST_CHECK_EXCEPTION((void)sampler::noise(temperature::of(T)), error, [](error const& e) {
            return e.code() == errc::usage &&
                   std::string(e.what()).find("scaled noise needs T from 0 to 1000, found") != std::string::npos;
        });
}

BOOST_AUTO_TEST_CASE(rounds_grow_while_their_rows_are_few) {
    constexpr auto adaptive = sampling_rule::adaptive;
    constexpr auto batch = sampling_rule::batch;
    BOOST_TEST(round_size(adaptive, 2, 0, 1) == 8);      // a few rows cost no more than one
    BOOST_TEST(round_size(adaptive, 2, 0, 16) == 2);     // many patches share the rows
    BOOST_TEST(round_size(adaptive, 200, 0, 1) == 200);  // at least one attempt
    BOOST_TEST(round_size(adaptive, 1, 24, 1) == 24);    // doubles
    BOOST_TEST(round_size(adaptive, 1, 24, 4) == 16);    // up to 64 rows in all
    BOOST_TEST(round_size(adaptive, 1, 24, 64) == 6);    // a quarter more
    BOOST_TEST(round_size(adaptive, 1, 5000, 1) == 64);
    BOOST_TEST(round_size(adaptive, 500, 1000, 1) == 500);
    BOOST_TEST(round_size(batch, 90, 0, 1) == 90);   // enough to be sure
    BOOST_TEST(round_size(batch, 3, 90, 1) == 16);   // a few rows, without doubling
    BOOST_TEST(round_size(batch, 3, 90, 16) == 12);  // an eighth more
}
