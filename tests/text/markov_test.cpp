#include "calm/text/markov.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "calm/loss/brier.hpp"

using calm::markov_chain;
using calm::split;
using calm::token_id;

namespace {

constexpr auto V = static_cast<token_id>(markov_chain::symbols);

std::vector<token_id> symbols_of(std::string const& text) {
    std::vector<token_id> ids;
    for (char const c : text) ids.push_back(static_cast<token_id>(calm::markov_alphabet.find(c)));
    return ids;
}

// All symbols that are reachable from `from`.
std::set<token_id> reached_from(markov_chain const& chain, token_id from) {
    std::set<token_id> reached;
    std::vector<token_id> open{from};
    while (!open.empty()) {
        auto const at = open.back();
        open.pop_back();
        for (auto const& next : chain.after(at))
            if (reached.insert(next.symbol).second) open.push_back(next.symbol);
    }
    return reached;
}

// A bound that chi-square with this many degrees of freedom exceeds once in about 30,000 (Wilson and Hilferty).
double bound(double freedom) {
    double const spread = 2.0 / (9.0 * freedom);
    return freedom * std::pow(1.0 - spread + 4.0 * std::sqrt(spread), 3);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_symbol_has_four_successors_and_reaches_every_symbol) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        markov_chain const chain(seed);
        for (token_id a = 0; a < V; ++a) {
            std::set<token_id> distinct;
            double sum = 0;
            double least = 1;
            double most = 0;
            for (auto const& [b, p] : chain.after(a)) {
                BOOST_TEST((b >= 0 && b < V));
                BOOST_TEST(chain.probability(b, a) == p);
                distinct.insert(b);
                sum += p;
                least = std::min(least, p);
                most = std::max(most, p);
            }
            BOOST_TEST(distinct.size() == 4u);
            BOOST_TEST(sum == 1.0, boost::test_tools::tolerance(1e-14));
            BOOST_TEST(most / least <= 1.05 / 0.05);  // weights lie in [0.05, 1.05)
        }
        for (token_id a : {0, 17, 63}) BOOST_TEST(reached_from(chain, a).size() == markov_chain::symbols);
    }
}

BOOST_AUTO_TEST_CASE(weights_are_squares_of_uniforms_plus_a_twentieth) {
    // Rows are normalised, so only ratios remain: compares the mean sum of squares with that of four weights drawn
    // here.
    calm::random_sequence random({.seed = 99});
    auto const mean_of_squares = [&] {
        double sum = 0;
        double squares = 0;
        for (int i = 0; i < 4; ++i) {
            double const u = static_cast<double>(random.uniform());
            sum += u * u + 0.05;
            squares += (u * u + 0.05) * (u * u + 0.05);
        }
        return squares / (sum * sum);
    };
    double expected = 0;
    double found = 0;
    constexpr int rows = 40 * V;
    for (int i = 0; i < rows; ++i) expected += mean_of_squares() / rows;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        markov_chain const chain(seed);
        for (token_id a = 0; a < V; ++a)
            for (auto const& next : chain.after(a)) found += next.probability * next.probability / rows;
    }
    BOOST_TEST(std::abs(found - expected) < 0.01);  // standard error of the difference: 0.003
}

BOOST_AUTO_TEST_CASE(the_stationary_distribution_stays) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        markov_chain const chain(seed);
        double sum = 0;
        for (token_id b = 0; b < V; ++b) {
            double next = 0;
            for (token_id a = 0; a < V; ++a) next += chain.stationary(a) * chain.probability(b, a);
            BOOST_TEST(next == chain.stationary(b), boost::test_tools::tolerance(1e-12));
            BOOST_TEST(chain.stationary(b) > 0.0);
            sum += chain.stationary(b);
        }
        BOOST_TEST(sum == 1.0, boost::test_tools::tolerance(1e-12));
    }
}

BOOST_AUTO_TEST_CASE(frequencies_match_the_markov_chain) {
    constexpr std::size_t length = 400'000;
    for (auto const of : {split::train, split::heldout}) {
        markov_chain const chain(3);
        auto const ids = symbols_of(chain.text(of, length));
        BOOST_REQUIRE(ids.size() == length);
        std::vector<double> pairs(static_cast<std::size_t>(V * V), 0.0);
        std::vector<double> firsts(static_cast<std::size_t>(V), 0.0);
        for (std::size_t i = 1; i < length; ++i) {
            pairs[static_cast<std::size_t>(ids[i - 1] * V + ids[i])] += 1;
            firsts[static_cast<std::size_t>(ids[i - 1])] += 1;
        }
        // Transitions, given the number of visits to each symbol: 64 times 3 degrees of freedom.
        double statistic = 0;
        for (token_id a = 0; a < V; ++a)
            for (token_id b = 0; b < V; ++b) {
                double const want = chain.probability(b, a) * firsts[static_cast<std::size_t>(a)];
                double const got = pairs[static_cast<std::size_t>(a * V + b)];
                if (want == 0.0) {
                    BOOST_TEST(got == 0.0);
                    continue;
                }
                statistic += (got - want) * (got - want) / want;
            }
        BOOST_TEST(statistic < bound(64 * 3));
        BOOST_TEST(statistic > 64 * 3 / 2.0);  // nor too good
        for (token_id a = 0; a < V; ++a)
            BOOST_TEST(std::abs(firsts[static_cast<std::size_t>(a)] / length - chain.stationary(a)) < 0.005);
    }
}

BOOST_AUTO_TEST_CASE(the_first_symbol_is_stationary) {
    // The mean probability of the drawn symbol equals the sum of the squared probabilities.
    double found = 0;
    double expected = 0;
    constexpr std::uint64_t seeds = 400;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        markov_chain const chain(seed);
        auto const first = symbols_of(chain.text(split::train, 1)).front();
        found += chain.stationary(first) / seeds;
        for (token_id a = 0; a < V; ++a) expected += chain.stationary(a) * chain.stationary(a) / seeds;
    }
    BOOST_TEST(std::abs(found - expected) < 0.003);  // standard error 0.0007; uniform symbols: 1/64 against 0.028
    BOOST_TEST(expected > 1.0 / 64 + 0.006);
}

BOOST_AUTO_TEST_CASE(a_seed_names_a_chain_and_the_splits_share_it) {
    markov_chain const chain(7);
    auto const train = chain.text(split::train, 1000);
    BOOST_TEST(train == markov_chain(7).text(split::train, 1000));
    BOOST_TEST(chain.text(split::train, 500) == train.substr(0, 500));
    BOOST_TEST(chain.text(split::heldout, 1000) != train);
    BOOST_TEST(chain.text(split::heldout, 30).find(train.substr(0, 20)) == std::string::npos);
    markov_chain const other(8);
    bool same = true;
    for (token_id a = 0; a < V; ++a) same = same && chain.after(a)[0].symbol == other.after(a)[0].symbol;
    BOOST_TEST(!same);
    BOOST_TEST(std::set<char>(calm::markov_alphabet.begin(), calm::markov_alphabet.end()).size() == 64u);
    // All measured results depend on this text.
    BOOST_TEST(train.substr(0, 32) == "5lKWEM5PzmWE6O+HiGO48kBgSR6O+e1J");
}

BOOST_AUTO_TEST_CASE(the_optimum_matches_the_enumeration) {
    for (std::uint64_t seed : {1U, 2U}) {
        markov_chain const chain(seed);
        // The sum of the squared probabilities of all sequences of n symbols after each first symbol.
        calm::brier_scores direct{};
        for (token_id a = 0; a < V; ++a) {
            double const share = chain.stationary(a);
            for (auto const& [b, p1] : chain.after(a)) {
                direct[0] += share * p1 * p1;
                for (auto const& [c, p2] : chain.after(b)) {
                    direct[1] += share * std::pow(p1 * p2, 2);
                    for (auto const& [d, p3] : chain.after(c)) {
                        direct[2] += share * std::pow(p1 * p2 * p3, 2);
                        for (auto const& [e, p4] : chain.after(d)) direct[3] += share * std::pow(p1 * p2 * p3 * p4, 2);
                    }
                }
            }
        }
        auto const optimum = chain.optimal_brier();
        for (std::size_t n = 0; n < 4; ++n) BOOST_TEST(optimum[n] == direct[n], boost::test_tools::tolerance(1e-12));
        BOOST_TEST((optimum[0] > 0.3 && optimum[0] < 0.6));
        BOOST_TEST(optimum[3] < optimum[2]);
        // The score of the Markov source itself on its text, 2 P(y) - sum P^2, converges to it.
        auto const ids = symbols_of(chain.text(split::heldout, 100'000));
        calm::brier_scores mean{};
        for (std::size_t i = 0; i + 4 < ids.size(); ++i) {
            double joint = 1.0;
            for (std::size_t n = 0; n < 4; ++n) {
                joint *= chain.probability(ids[i + n + 1], ids[i + n]);
                mean[n] += 2 * joint / static_cast<double>(ids.size() - 4);
            }
        }
        for (std::size_t n = 0; n < 4; ++n) BOOST_TEST(std::abs(mean[n] / 2 - optimum[n]) < 0.005);
    }
}
