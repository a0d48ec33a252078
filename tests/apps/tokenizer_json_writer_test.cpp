// tokenizer.json of a vocabulary that was trained here.
#include "text/tokenizer_json_writer.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

#include "calm/text/load_tokenizer.hpp"
#include "calm/text/markov.hpp"
#include "calm/text/stories.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::sentence_of;

BOOST_AUTO_TEST_CASE(a_trained_tokenizer_is_equal_as_json) {
    auto const words = calm::tokenizer::train(calm::stories(300), 500);
    auto const json = calm::parse_tokenizer(calm::apps::tokenizer_json_of(words), "tokenizer.json");
    BOOST_TEST(json.fingerprint() == words.fingerprint());
    BOOST_TEST(json.published(500, {}).specials().bos_first);
    std::string text;
    for (int byte = 1; byte < 128; ++byte) text += std::string("Mia had ") + static_cast<char>(byte) + "cake's ";
    BOOST_TEST((json.encode(text) == words.encode(text)));
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::apps::tokenizer_json_of(json); }),
                   "expected a tokenizer that train tokenizer wrote"));
    BOOST_TEST(has(sentence_of<calm::error>(
                       [] { (void)calm::apps::tokenizer_json_of(calm::tokenizer::of_symbols(calm::markov_alphabet)); }),
                   "expected a tokenizer that train tokenizer wrote"));
}
