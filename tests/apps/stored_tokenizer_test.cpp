// The tokenizer file in a model directory: found in either format, refused if it is not the model's own.
#include <boost/test/unit_test.hpp>

#include <string>

#include "../text/tokenizer_files.hpp"
#include "calm/text/bpe_trainer.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"
#include "text/text_data.hpp"

namespace {

using calm::test::has;
using calm::test::sentence_of;

calm::token_table some_tokens() {
    auto table = calm::bpe_trainer().train(0);
    table.add("ab");
    return table;
}

calm::stored_model model_in(calm::test::temporary_folder const& folder, calm::tokenizer const& words) {
    calm::stored_model model;
    model.directory = folder.path("");
    model.description.vocab_size = words.vocabulary_size();
    auto& ours = model.description.calm.emplace().tokenizer.emplace();
    ours.file = words.file_name();
    ours.fingerprint = words.fingerprint();
    return model;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_tokenizer_lies_under_the_name_of_its_form) {
    calm::test::temporary_folder const folder;
    auto const json = calm::test::json_of(some_tokens()).text();
    auto const path = folder.with("any.name", json);
    auto const words = calm::apps::tokenizer_named(path);
    BOOST_TEST(words.file_name() == "tokenizer.json");
    BOOST_TEST(calm::apps::tokenizer_bytes(path) == json);
    (void)folder.with(words.file_name(), calm::apps::tokenizer_bytes(path));
    auto model = model_in(folder, words);
    BOOST_TEST(calm::apps::tokenizer_path(model) == folder.path("tokenizer.json"));
    BOOST_TEST(calm::apps::tokenizer_of(model).fingerprint() == words.fingerprint());

    // Stored as lines, the tokenizer stays the same.
    auto const lines = calm::apps::tokenizer_named(folder.with("tokenizer.model", words.lines()));
    BOOST_TEST(lines.file_name() == "tokenizer.model");
    model.description.calm->tokenizer->file = lines.file_name();
    BOOST_TEST(calm::apps::tokenizer_of(model).fingerprint() == words.fingerprint());
}

BOOST_AUTO_TEST_CASE(a_published_directory_has_either_form) {
    calm::test::temporary_folder const folder;
    auto const words = calm::parse_tokenizer(calm::test::json_of(some_tokens()).text(), "");
    auto model = model_in(folder, words);
    model.description.calm.reset();
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::apps::tokenizer_of(model); }), "tokenizer.model"));
    (void)folder.with("tokenizer.json", calm::test::json_of(some_tokens()).text());
    BOOST_TEST(calm::apps::tokenizer_of(model).fingerprint() == words.fingerprint());
    (void)folder.with("tokenizer.model", calm::tokenizer().lines());  // takes precedence and has another size
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::apps::tokenizer_of(model); }),
                   "expected a vocabulary of 260 tokens, found 259"));
}

BOOST_AUTO_TEST_CASE(another_tokenizer_is_refused) {
    calm::test::temporary_folder const folder;
    auto file = calm::test::json_of(some_tokens());
    auto const model = model_in(folder, calm::parse_tokenizer(file.text(), ""));
    file.merges = "[]";  // equal tokens with other merges
    file.ignore_merges = "false";
    (void)folder.with("tokenizer.json", file.text());
    auto const sentence = sentence_of<calm::error>([&] { (void)calm::apps::tokenizer_of(model); });
    BOOST_TEST(has(sentence, "tokenizer.json: expected the tokenizer with fingerprint"));
    BOOST_TEST(has(sentence, "put the model's own tokenizer back"));
}
