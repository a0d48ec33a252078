#include "calm/text/corpus.hpp"
#include "calm/text/load_tokenizer.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

#include "calm/text/build_corpus.hpp"
#include "calm/text/markov.hpp"
#include "shared_data.hpp"
#include "support/sentences.hpp"

using calm::split;
using calm::test::sentence_of;
using strings = std::vector<std::string>;

BOOST_AUTO_TEST_CASE(documents_are_stored_one_after_another) {
    calm::corpus made({256, 257, 258});
    std::vector<calm::token_id> const first{1, 2, 3};
    BOOST_TEST(made.add(first) == 3U);
    BOOST_TEST(made.add(std::vector<calm::token_id>{}) == 0U);
    BOOST_TEST(made.add([](std::vector<calm::token_id>& ids) { ids.push_back(9); }) == 1U);
    BOOST_TEST(made.documents() == 3U);
    BOOST_TEST(made.tokens() == 4U);
    BOOST_TEST(made.document(0).size() == 3U);
    BOOST_TEST(made.document(1).empty());
    BOOST_TEST(made.document(2)[0] == 9);
    for (std::size_t i = 0; i < made.documents(); ++i) BOOST_TEST(made.size(i) == made.document(i).size());
}

BOOST_AUTO_TEST_CASE(a_corpus_is_its_documents_encoded) {
    calm::test::temporary_file const file("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"cde\"}\n");
    calm::tokenizer const bytes;
    auto const made = calm::build_corpus(strings{file.path()}, bytes, {});
    BOOST_TEST(made.documents() == 3U);
    BOOST_TEST(bytes.decode(made.document(2)) == "cde");
    BOOST_TEST((made.specials() == bytes.specials()));
    auto const held = calm::build_corpus(strings{file.path()}, bytes, {split::heldout, calm::holdout::parse("3:2")});
    BOOST_TEST(held.documents() == 1U);
    BOOST_TEST(bytes.decode(held.document(0)) == "cde");
    auto const complaint = sentence_of<calm::error>([&] {
        (void)calm::build_corpus(strings{file.path()}, bytes, {split::heldout, calm::holdout::parse("9:7")});
    });
    auto const expected = "no document is left to evaluate on with the holdout 9:7 (documents in all: 3)";
    BOOST_TEST(complaint.find(expected) != std::string::npos);
    calm::test::temporary_file const one("one.txt", "only one");
    auto const learned = sentence_of<calm::error>([&] {
        (void)calm::train_tokenizer(strings{one.path()}, 300, {split::train, calm::holdout::parse("6:0")});
    });
    BOOST_TEST(learned.find("no document is left to train on with the holdout 6:0 (documents in all: 1)") == 0U);
}

BOOST_AUTO_TEST_CASE(stories_are_counted_in_tokens_and_never_shared) {
    auto const words = calm::train_tokenizer(strings{"stories:20000"}, 512, {});
    BOOST_TEST(words.vocabulary_size() == 512);
    auto const train = calm::build_corpus(strings{"stories:20000"}, words, {});
    auto const held = calm::build_corpus(strings{"stories:20000"}, words, {split::heldout});
    BOOST_TEST(train.tokens() >= 20000U);
    BOOST_TEST(train.tokens() < 20200U);
    std::set<std::string> seen;
    for (std::size_t i = 0; i < train.documents(); ++i) seen.insert(words.decode(train.document(i)));
    std::size_t known = 0;
    for (std::size_t i = 0; i < held.documents(); ++i) known += seen.contains(words.decode(held.document(i)));
    BOOST_TEST(known * 20 <= held.documents());
}

BOOST_AUTO_TEST_CASE(wikitext_holds_out_ten_documents) {
    auto const text = calm::test::shared_file("data/wikitext_document_level-test.json");
    auto const model = calm::test::shared_file("data/llama3.tokenizer.model");
    if (!text || !model) return;
    auto const llama = calm::load_tokenizer(*model);
    auto const held = calm::build_corpus(strings{*text}, llama, {split::heldout, calm::holdout::parse("6:5")});
    BOOST_TEST(held.documents() == 10U);
    BOOST_TEST(held.tokens() == 55'136U);
    auto const all = calm::build_corpus(strings{*text}, llama, {split::heldout});
    BOOST_TEST(all.documents() == 62U);
    BOOST_TEST(all.tokens() == 289'083U);
}

BOOST_AUTO_TEST_CASE(the_markov_source_has_its_own_vocabulary) {
    auto const symbols = calm::tokenizer::of_symbols(calm::markov_alphabet);
    auto const made = calm::build_corpus(strings{"markov:5000"}, symbols, {split::heldout});
    BOOST_TEST(made.tokens() == 5000U);
    BOOST_TEST(!made.specials().exist());
    BOOST_TEST(symbols.decode(made.document(0)) == calm::markov_chain(1).text(split::heldout, 5000));
    auto const words_for = [](strings const& specs, calm::tokenizer const& words) {
        return sentence_of<calm::error>([&] { (void)calm::build_corpus(specs, words, {}); });
    };
    BOOST_TEST(words_for({"markov:100"}, {}).find("the symbols of markov:100, found one of text") != std::string::npos);
    BOOST_TEST(words_for({"stories:100"}, symbols).find("found text") != std::string::npos);
    auto const learned = sentence_of<calm::error>([] { (void)calm::train_tokenizer(strings{"markov:100"}, 300, {}); });
    BOOST_TEST(learned.find("no vocabulary") != std::string::npos);
}
