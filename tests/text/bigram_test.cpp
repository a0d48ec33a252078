#include "calm/text/bigram.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "calm/base/random.hpp"
#include "shared_data.hpp"
#include "support/sentences.hpp"

namespace {

using calm::bigram_table;
using calm::token_id;
using ids = std::vector<token_id>;

// The sum of squared probabilities over all sequences of n tokens, by enumeration.
template <class Probability> double collision(int V, int n, int previous, Probability q) {
    if (n == 0) return 1.0;
    double sum = 0;
    for (int b = 0; b < V; ++b) sum += q(b, previous) * q(b, previous) * collision(V, n - 1, b, q);
    return sum;
}

}  // namespace

// One vocabulary has a table of all pairs; for the other, only pairs that occur are stored.
BOOST_AUTO_TEST_CASE(text_in_portions_is_counted_as_a_whole) {
    for (token_id const V : {7, 5000}) {
        calm::random_sequence random({.seed = 4});
        ids tokens(3000);
        for (auto& t : tokens) t = static_cast<token_id>(random.below(7)) * (V / 7);
        std::map<std::pair<token_id, token_id>, std::uint64_t> expected;
        for (std::size_t i = 1; i < tokens.size(); ++i) ++expected[{tokens[i - 1], tokens[i]}];
        calm::bigram_counts counts(V, 250);
        for (std::span<token_id const> rest = tokens; !rest.empty();) {
            auto const portion = rest.first(std::min<std::size_t>(rest.size(), random.below(40)));
            counts.add(portion);
            rest = rest.subspan(portion.size());
        }
        for (auto const t : tokens) BOOST_TEST(counts.unigram()[static_cast<std::size_t>(t)] > 0U);
        auto const pairs = std::move(counts).pairs();
        BOOST_TEST_REQUIRE(pairs.size() == expected.size());
        auto each = pairs.begin();
        for (auto const& [two, count] : expected) {
            BOOST_TEST((each->first == two.first && each->second == two.second));
            BOOST_TEST(each->count == count);
            ++each;
        }
    }
}

BOOST_AUTO_TEST_CASE(scores_match_the_enumeration) {
    int const V = 5;
    calm::random_sequence random({.seed = 3});
    for (int round = 0; round < 30; ++round) {
        ids tokens(1 + random.below(25));
        for (auto& t : tokens) t = static_cast<token_id>(random.below(V));
        bigram_table const table(V, tokens);
        auto const unigram = [&](int b, int) {
            return static_cast<double>(std::count(tokens.begin(), tokens.end(), b)) /
                   static_cast<double>(tokens.size());
        };
        auto const bigram = [&](int b, int a) {
            double both = 0;
            double first = 0;
            for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
                first += tokens[i] == a;
                both += tokens[i] == a && tokens[i + 1] == b;
            }
            return first > 0 ? both / first : unigram(b, a);
        };
        for (int sample = 0; sample < 10; ++sample) {
            std::array<token_id, 4> y{};
            for (auto& t : y) t = static_cast<token_id>(random.below(V));
            auto const previous = static_cast<token_id>(random.below(V));
            auto const by_unigram = table.unigram_brier(y);
            auto const by_bigram = table.bigram_brier(previous, y);
            double joint_unigram = 1;
            double joint_bigram = 1;
            for (std::size_t n = 0; n < 4; ++n) {
                joint_unigram *= unigram(y[n], 0);
                joint_bigram *= bigram(y[n], n == 0 ? previous : y[n - 1]);
                int const length = static_cast<int>(n) + 1;
                BOOST_TEST(std::abs(by_unigram[n] - (2 * joint_unigram - collision(V, length, 0, unigram))) < 1e-12);
                BOOST_TEST(std::abs(by_bigram[n] - (2 * joint_bigram - collision(V, length, previous, bigram))) <
                           1e-12);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(closed_forms) {
    ids uniform(16);
    for (std::size_t i = 0; i < 16; ++i) uniform[i] = static_cast<token_id>(i);
    bigram_table const table(16, uniform);
    std::array<token_id, 4> const y{1, 2, 3, 4};
    auto const unigram = table.unigram_brier(y);
    for (std::size_t n = 0; n < 4; ++n)
        BOOST_TEST(std::abs(unigram[n] - std::pow(16.0, -static_cast<double>(n + 1))) < 1e-12);
    auto const certain = table.bigram_brier(0, y);  // 0 is always followed by 1, 1 by 2, ...
    for (double const score : certain) BOOST_TEST(score == 1.0);
    std::array<token_id, 4> const wrong{2, 3, 4, 5};
    for (double const score : table.bigram_brier(0, wrong)) BOOST_TEST(score == -1.0);
    BOOST_TEST(table.bigram_brier(15, y)[0] == 1.0 / 16);  // 15 has no successor: the unigram counts
}

BOOST_AUTO_TEST_CASE(saved_and_loaded_it_scores_the_same) {
    calm::random_sequence random({.seed = 8});
    ids tokens(3000);
    for (auto& t : tokens) t = static_cast<token_id>(random.below(random.below(60) + 1));
    bigram_table const table(64, tokens);
    calm::test::temporary_file const file("bigram.bin");
    table.save(file.path());
    auto const loaded = bigram_table::load(file.path());
    BOOST_TEST(loaded.vocabulary_size() == 64);
    for (std::size_t i = 0; i + 5 < 500; ++i) {
        std::array<token_id, 4> const y{tokens[i + 1], tokens[i + 2], tokens[i + 3], tokens[i + 4]};
        BOOST_TEST((table.bigram_brier(tokens[i], y) == loaded.bigram_brier(tokens[i], y)));
        BOOST_TEST((table.unigram_brier(y) == loaded.unigram_brier(y)));
    }
    std::string const good = file.content();
    auto const complaint = [](std::string const& content) {
        calm::test::temporary_file const bad("bigram.bin", content);
        return calm::test::sentence_of<calm::error>([&] { (void)bigram_table::load(bad.path()); });
    };
    for (std::size_t const size :
         {std::size_t{0}, std::size_t{5}, std::size_t{20}, std::size_t{60}, good.size() - 8, good.size() - 1})
        BOOST_TEST(complaint(good.substr(0, size)).find("the bigram table is damaged") != std::string::npos);
    BOOST_TEST(complaint(good + "x").find("do not fit a file") != std::string::npos);
    // A damaged byte is detected: pairs and tokens are counted in the same text.
    for (int round = 0; round < 300; ++round) {
        std::string damaged = good;
        damaged[random.below(static_cast<std::uint32_t>(good.size()))] ^= static_cast<char>(1 + random.below(255));
        BOOST_TEST(complaint(damaged).find("the bigram table is damaged") != std::string::npos);
    }
    BOOST_CHECK_THROW(bigram_table(64, ids{}), calm::error);
    BOOST_CHECK_THROW(bigram_table(64, ids{64}), calm::error);
    BOOST_CHECK_THROW((void)bigram_table::load("no-such-file"), calm::error);
    BOOST_CHECK_THROW((void)bigram_table::load("/dev/zero"), calm::error);
}
