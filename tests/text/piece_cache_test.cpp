#include "calm/text/detail/piece_cache.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include "calm/base/random.hpp"
#include "calm/text/tokenizer.hpp"

using namespace calm;

namespace {

// Up to 20 bytes of three values including zero: many pieces have a common prefix.
std::string drawn_piece(random_sequence& draws) {
    std::string piece(1 + draws.below(20), '\0');
    for (char& c : piece) c = static_cast<char>(draws.below(3));
    return piece;
}

// Up to eight tokens, unique to each piece: its length and its bytes.
std::vector<token_id> tokens_of(std::string const& piece) {
    std::vector<token_id> tokens{static_cast<token_id>(piece.size())};
    for (std::size_t i = 0; i < piece.size(); i += 3) {
        token_id three = 0;
        for (std::size_t j = i; j < std::min(piece.size(), i + 3); ++j) three = 4 * three + 1 + piece[j];
        tokens.push_back(three);
    }
    return tokens;
}

}  // namespace

BOOST_AUTO_TEST_CASE(found_ids_are_those_kept_for_the_piece) {
    detail::piece_cache cache;
    random_sequence draws(key{1});
    int found = 0, wrong = 0;
    for (int i = 0; i < 200'000; ++i) {
        auto const piece = drawn_piece(draws);
        std::vector<token_id> out{-5};
        if (cache.find(piece, out)) {
            ++found;
            out.erase(out.begin());
            wrong += out != tokens_of(piece);
        } else {
            wrong += out.size() != 1;
            cache.keep(piece, tokens_of(piece));
        }
    }
    BOOST_TEST(wrong == 0);
    BOOST_TEST(found > 20'000);
}

BOOST_AUTO_TEST_CASE(a_piece_that_comes_again_is_known_and_long_ones_never_are) {
    detail::piece_cache cache;
    std::vector<token_id> out;
    std::vector<token_id> const seven(7, 1), eight(8, 1);
    for (int i = 0; i < 2000; ++i) cache.keep("word" + std::to_string(i), seven);
    cache.keep("fifteen letters", seven);
    BOOST_TEST(cache.find("fifteen letters", out));
    BOOST_TEST((out == seven));
    for (std::string const piece : {"sixteen letters.", "another", ""}) BOOST_TEST(!cache.find(piece, out));
    cache.keep("sixteen letters.", seven);
    cache.keep("eight tokens", eight);
    BOOST_TEST(!cache.find("sixteen letters.", out));
    BOOST_TEST(!cache.find("eight tokens", out));
}

// A cache loses nothing when it grows.
BOOST_AUTO_TEST_CASE(cached_pieces_stay_while_there_is_room) {
    detail::piece_cache cache;
    std::vector<token_id> const tokens{1, 2};
    int known = 0, most_known = 0;
    for (int i = 0; i < 2000; ++i) {
        cache.keep("word" + std::to_string(i), tokens);
        std::vector<token_id> out;
        known = 0;
        for (int j = 0; j <= i; ++j) known += cache.find("word" + std::to_string(j), out) ? 1 : 0;
        BOOST_REQUIRE(known + 1 >= most_known);  // one may replace another
        most_known = std::max(most_known, known);
    }
    BOOST_TEST(known > 1200);
}

// A text gets the tokens of its words, each encoded alone.
BOOST_AUTO_TEST_CASE(a_long_text_has_the_tokens_of_its_pieces) {
    random_sequence draws(key{2});
    std::vector<std::string> words;
    for (int i = 0; i < 3000; ++i) {
        std::string word = " ";
        for (auto n = 1 + draws.below(14); n > 0; --n) word += static_cast<char>('a' + draws.below(6));
        words.push_back(word);
    }
    auto const coder = tokenizer::train(words, 700);
    std::string text;
    std::vector<token_id> want;
    for (int i = 0; i < 20'000; ++i) {
        auto const& word = words[draws.below(i % 2 == 0 ? 50 : 3000)];
        text += word;
        coder.encode(word, want);
    }
    BOOST_TEST((coder.encode(text) == want));
}
