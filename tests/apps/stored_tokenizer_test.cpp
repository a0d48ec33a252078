// The tokenizer stored with a model: found in either format, and refused if it does not match the model.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>

#include "../text/tokenizer_files.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/bpe_trainer.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"
#include "text/text_data.hpp"

namespace {

using calm::test::has;
using calm::test::sentence_of;

calm::detail::token_table some_tokens() {
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
    ours.pattern = words.pattern();
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
    BOOST_TEST(calm::tokenizer_file_of(model) == folder.path("tokenizer.json"));
    BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint());

    // The tokenizer in lines format is equal.
    auto const lines = calm::apps::tokenizer_named(folder.with("tokenizer.model", words.lines()));
    BOOST_TEST(lines.file_name() == "tokenizer.model");
    model.description.calm->tokenizer->file = lines.file_name();
    BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint());

    // transformers keeps config.json, which names the lines, and saves the other form alone.
    std::filesystem::remove(folder.path("tokenizer.model"));
    BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint());
    std::filesystem::remove(folder.path("tokenizer.json"));
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }), "put that file back"));
}

// config.json and the fingerprint tell what tiktoken's lines do not.
BOOST_AUTO_TEST_CASE(a_model_knows_the_pattern_of_its_lines) {
    calm::test::temporary_folder const folder;
    std::string const path = CALM_FIXTURES_DIR "/tokenizers/tiktoken.model";
    for (auto const* const pattern : {"llama3", "gpt2", "cl100k", "o200k"}) {
        auto const words = calm::apps::tokenizer_named(path, pattern);
        (void)folder.with(words.file_name(), calm::apps::tokenizer_bytes(path));
        auto model = model_in(folder, words);
        BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint(), pattern);
        model.description.calm->tokenizer->pattern = "another";
        BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }),
                       "expected the tokenizer with fingerprint"));
    }
}

// Without such a config.json the caller names the pattern.
BOOST_AUTO_TEST_CASE(a_pattern_makes_lines_of_a_published_directory_readable) {
    calm::test::temporary_folder const folder;
    std::string const path = CALM_FIXTURES_DIR "/tokenizers/tiktoken.model";
    auto const words = calm::apps::tokenizer_named(path, "gpt2");
    (void)folder.with(words.file_name(), calm::apps::tokenizer_bytes(path));
    auto model = model_in(folder, words);
    auto const refused = [&] { return sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }); };
    model.pattern = "gpt2";
    BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint());
    model.pattern = "o200k";
    BOOST_TEST(has(refused(), "by the pattern o200k; leave it out"), refused());
    model.description.calm.reset();
    model.pattern = "gpt2";
    BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint());
    model.pattern.clear();
    BOOST_TEST(has(refused(), "give --pattern llama3, gpt2"), refused());
}

BOOST_AUTO_TEST_CASE(a_published_directory_has_either_form) {
    calm::test::temporary_folder const folder;
    auto const words = calm::parse_tokenizer(calm::test::json_of(some_tokens()).text(), "");
    auto model = model_in(folder, words);
    model.description.calm.reset();
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }), "tokenizer.model"));
    (void)folder.with("tokenizer.json", calm::test::json_of(some_tokens()).text());
    BOOST_TEST(calm::load_tokenizer(model).fingerprint() == words.fingerprint());
    (void)folder.with("tokenizer.model", calm::tokenizer().lines());  // preferred, and of another size
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }),
                   "expected a vocabulary of 260 tokens, found 259"));
}

BOOST_AUTO_TEST_CASE(a_published_language_model_follows_its_own_rules) {
    calm::test::temporary_folder const folder;
    auto file = calm::test::json_of(some_tokens());
    file.added_tokens = "[" + calm::test::json_added(257, "<|endoftext|>") + "]";
    auto const words = calm::parse_tokenizer(file.text(), "");
    auto model = model_in(folder, words);
    model.description.kind = calm::model_kind::autoregressive;
    model.description.calm.reset();
    model.description.vocab_size = 258;  // no row for a PAD
    (void)folder.with("tokenizer.json", file.text());
    auto const plain = calm::load_tokenizer(model);
    BOOST_TEST((plain.vocabulary_size() == 258 && plain.pad() == -1));
    BOOST_TEST(!plain.specials().bos_first);
    (void)folder.with("tokenizer_config.json",
                      R"({"add_bos_token": true, "model_max_length": 1000000000000000019884624838656})");
    BOOST_TEST(calm::load_tokenizer(model).specials().bos_first);
    (void)folder.with("tokenizer_config.json", R"({"add_bos_token": "yes"})");
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }),
                   "tokenizer_config.json, add_bos_token: expected true or false"));
    (void)folder.with("tokenizer_config.json", "{}");
    model.description.vocab_size = 5000;
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }),
                   "expected a vocabulary of 5000 tokens or a few less, found 259"));
}

// As training from a published model writes it: the table decides about PAD and spare ids, config.json about BOS.
BOOST_AUTO_TEST_CASE(a_model_trained_from_a_published_one_keeps_its_tokenizer) {
    calm::test::temporary_folder const folder;
    auto const is_kept = [&](calm::tokenizer const& file, calm::token_id rows, bool bos_first) {
        auto const words = file.published(rows, bos_first);
        auto model = model_in(folder, words);
        model.description.kind = calm::model_kind::autoregressive;
        model.description.calm->tokenizer->bos_first = bos_first;
        BOOST_TEST(calm::has_published_tokenizer(model));
        auto const read = calm::load_tokenizer(model);
        BOOST_TEST(read.fingerprint() == words.fingerprint());
        BOOST_TEST((read.specials() == words.specials()));
        BOOST_TEST(read.vocabulary_size() == rows);
        model.description.calm->tokenizer->fingerprint = file.fingerprint() + "0";
        BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); }),
                       "expected the tokenizer with fingerprint"));
    };
    auto file = calm::test::json_of(some_tokens());
    file.added_tokens = "[" + calm::test::json_added(257, "<|endoftext|>") + "]";
    (void)folder.with("tokenizer.json", file.text());
    for (calm::token_id const rows : {258, 259, 300})
        is_kept(calm::parse_tokenizer(file.text(), ""), rows, rows == 300);

    auto const lines = std::string(CALM_FIXTURES_DIR "/tokenizers/tiktoken.model");
    (void)folder.with("tokenizer.model", calm::apps::bytes_of_file(lines));
    for (auto const* const pattern : {"llama3", "gpt2", "cl100k"}) {
        auto const words = calm::load_tokenizer(lines, pattern);
        is_kept(words, words.vocabulary_size() - 1, false);
    }

    // Lines that are recognised without a pattern and fill the table, as Llama 3's with a row for PAD.
    (void)folder.with("tokenizer.model", calm::tokenizer().lines());
    for (bool const bos_first : {false, true}) is_kept(calm::tokenizer(), calm::tokenizer::byte_vocabulary, bos_first);
}

BOOST_AUTO_TEST_CASE(another_tokenizer_is_refused) {
    calm::test::temporary_folder const folder;
    auto file = calm::test::json_of(some_tokens());
    auto const model = model_in(folder, calm::parse_tokenizer(file.text(), ""));
    file.merges = "[]";  // equal tokens with other merges
    file.ignore_merges = "false";
    (void)folder.with("tokenizer.json", file.text());
    auto const sentence = sentence_of<calm::error>([&] { (void)calm::load_tokenizer(model); });
    BOOST_TEST(has(sentence, "tokenizer.json: expected the tokenizer with fingerprint"));
    BOOST_TEST(has(sentence, "put the model's own tokenizer back"));
}
