#include "calm/text/stories.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "calm/text/bigram.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/packing.hpp"

namespace {

using calm::split;
using calm::token_id;
using calm::detail::story_choices;
using calm::detail::story_options;
using ids = std::vector<token_id>;

// The expected Brier-1..4 of the grammar itself, averaged over all positions of a story: the sum of the squared
// probabilities of the next tokens given all earlier ones. Choices show in the text one after another, so only the next
// few open ones matter.
std::array<double, 4> optimum(calm::tokenizer const& words, std::uint64_t stories) {
    auto const tokens_of = [&](story_choices const& choices) {
        ids all{words.bos()};
        words.encode(calm::detail::tell_story(choices), all);
        all.push_back(words.eos());
        return all;
    };
    std::array<double, 4> sums{};
    double places = 0;
    calm::random_sequence random({.seed = 42});
    for (std::uint64_t s = 0; s < stories; ++s) {
        story_choices told{};
        for (std::size_t c = 0; c < told.size(); ++c) told[c] = random.below(story_options[c]);
        ids const actual = tokens_of(told);
        std::array<std::size_t, story_options.size()> known{};  // the position from which a choice is known
        for (std::size_t c = 0; c < told.size(); ++c)
            for (std::uint32_t v = 0; v < story_options[c]; ++v) {
                if (v == told[c]) continue;
                auto other = told;
                other[c] = v;
                ids const tokens = tokens_of(other);
                auto const split_at = std::mismatch(actual.begin(), actual.end(), tokens.begin(), tokens.end()).first;
                known[c] = std::max(known[c], static_cast<std::size_t>(split_at - actual.begin()) + 1);
            }
        std::map<std::vector<std::size_t>, std::vector<ids>> alternatives;
        for (std::size_t at = 1; at + 4 <= actual.size(); ++at) {
            std::vector<std::size_t> untold;
            for (std::size_t c = 0; c < told.size() && untold.size() < 2; ++c)
                if (known[c] > at) untold.push_back(c);
            auto& stories_here = alternatives[untold];
            if (stories_here.empty()) {
                std::vector<story_choices> all{told};
                for (std::size_t const c : untold) {
                    std::vector<story_choices> more;
                    for (auto choices : all)
                        for (choices[c] = 0; choices[c] < story_options[c]; ++choices[c]) more.push_back(choices);
                    all = more;
                }
                for (auto const& choices : all) stories_here.push_back(tokens_of(choices));
            }
            for (std::size_t n = 1; n <= 4; ++n) {
                std::map<ids, double> odds;
                double total = 0;
                for (ids const& other : stories_here) {
                    if (other.size() < at + n ||
                        !std::equal(actual.begin(), actual.begin() + static_cast<std::ptrdiff_t>(at), other.begin()))
                        continue;
                    auto const begin = other.begin() + static_cast<std::ptrdiff_t>(at);
                    ++odds[ids(begin, begin + static_cast<std::ptrdiff_t>(n))];
                    ++total;
                }
                for (auto const& [tokens, count] : odds) sums[n - 1] += count * count / (total * total);
            }
            ++places;
        }
    }
    for (double& sum : sums) sum /= places;
    return sums;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_story_is_a_function_of_seed_split_and_number) {
    BOOST_TEST(calm::story(1, split::train, 5) == calm::story(1, split::train, 5));
    BOOST_TEST(calm::story(1, split::train, 5) != calm::story(1, split::heldout, 5));
    BOOST_TEST(calm::story(1, split::train, 5) != calm::story(2, split::train, 5));
    BOOST_TEST(calm::story(1, split::train, 0) ==
               "Emma was a little girl, and she had a green jacket. One day Emma took the jacket to the "
               "market, but the jacket was lost in the snow. Emma was sad, and a goat by the market saw "
               "Emma. \"Why are you sad?\" said the goat to Emma. \"The jacket was lost in the snow,\" said "
               "Emma to the goat. So the goat went to the snow, got the jacket, and gave the jacket to "
               "Emma. Emma was happy, and she gave the goat some apples. Now Emma and the goat are "
               "friends, and the goat has apples with Emma by the market.");
    BOOST_TEST(calm::story(2, split::heldout, 1'000'000) ==
               "Ben was a little boy, and he had a red ball. One day Ben took the ball to the park, but "
               "the ball was stuck in a tree. Ben was sad, and a frog by the park saw Ben. \"Why are you "
               "sad?\" said the frog to Ben. \"The ball was stuck in a tree,\" said Ben to the frog. So the "
               "frog went to the tree, got the ball, and gave the ball to Ben. Ben was happy, and he gave "
               "the frog some cake. Now Ben and the frog are friends, and the frog has cake with Ben by "
               "the park.");
}

BOOST_AUTO_TEST_CASE(stories_are_short_whole_and_varied) {
    std::set<std::string> train;
    std::set<std::string> words;
    for (std::uint64_t i = 0; i < 3000; ++i) {
        auto const text = calm::story(1, split::train, i);
        BOOST_REQUIRE(text.find_first_of("{}") == std::string::npos);
        BOOST_REQUIRE(text.ends_with('.'));
        std::string word;
        int sentences = 0;
        for (char const c : text) {
            sentences += c == '.';
            if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
                word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
            } else if (!word.empty()) {
                words.insert(word);
                word.clear();
            }
        }
        BOOST_REQUIRE(sentences >= 4);
        BOOST_REQUIRE(sentences <= 8);
        train.insert(text);
    }
    BOOST_TEST(words.size() >= 90U);
    int unseen = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) unseen += !train.contains(calm::story(1, split::heldout, i));
    BOOST_TEST(unseen >= 2850);
}

BOOST_AUTO_TEST_CASE(context_predicts_much_better_than_the_last_token) {
    std::vector<std::string> const specs{"stories:200000"};
    auto const words = calm::train_tokenizer(specs, 512, {});
    calm::packing_rule const rule{.K = 4, .seed = 1};
    auto const train = calm::packed_tokens(calm::build_corpus(specs, words, {}), rule);
    auto const held = calm::packed_tokens(
        calm::build_corpus(std::vector<std::string>{"stories:40000"}, words, {split::heldout}), rule);
    calm::bigram_table const table(words.vocabulary_size(), train);
    double sum = 0;
    double count = 0;
    for (std::size_t at = 3; at + 4 < held.size(); at += 4) {
        std::array<token_id, 4> const y{held[at + 1], held[at + 2], held[at + 3], held[at + 4]};
        if (std::find(y.begin(), y.end(), words.pad()) != y.end()) continue;
        sum += table.bigram_brier(held[at], y)[0];
        ++count;
    }
    auto const best = optimum(words, 4);
    BOOST_TEST_MESSAGE("bigram Brier-1 " << sum / count << ", optimum Brier-1..4 " << best[0] << ' ' << best[1] << ' '
                                         << best[2] << ' ' << best[3]);
    BOOST_TEST(sum / count < 0.40);
    BOOST_TEST(best[0] > 0.90);
    BOOST_TEST(best[3] > 0.75);
}
