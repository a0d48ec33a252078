#include "text/text_data.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>

#include "support/sentences.hpp"
#include "support/standard_error.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace calm;
using namespace calm::apps;

data_options from(std::string const& spec) {
    data_options data;
    data.sources = {spec};
    return data;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_of_files_is_tokenised_once) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"three\"}\n"));
    auto const path = folder.path("text.tokens");
    tokenizer const words;
    auto const same = [&](corpus const& text) {
        auto const plain = training_text(data, words, 1);
        BOOST_TEST(text.documents() == plain.documents());
        return text.tokens() == plain.tokens();
    };
    BOOST_TEST(same(training_text(data, words, 1)));
    BOOST_TEST(!std::filesystem::exists(path));
    BOOST_TEST(same(training_text(data, words, 1, path)));
    auto const whole = folder.content("text.tokens");
    // Other ids with the digest of this text: they are used, so the text is not tokenised again.
    {
        detail::token_file_writer writer(path);
        writer.open().assign(100, 65);
        writer.close();
        writer.commit(digest_of(data.sources, words, {}));
    }
    BOOST_TEST(training_text(data, words, 1, path).tokens() == 100U);
    for (std::size_t const size : {std::size_t{0}, whole.size() - 1}) {  // damaged
        std::filesystem::resize_file(path, size);
        BOOST_TEST(same(training_text(data, words, 1, path)));
        BOOST_TEST((folder.content("text.tokens") == whole));
    }
    static_cast<void>(folder.with("a.jsonl", "{\"text\": \"three\"}\n{\"text\": \"two\"}\n{\"text\": \"\"}\n"));
    BOOST_TEST(same(training_text(data, words, 1, path)));
    data.holdout = "3:0";
    BOOST_TEST(same(training_text(data, words, 1, path)));
    data.skip_bad = true;
    static_cast<void>(folder.with("a.jsonl", "{\"text\": \"three\"}\nbad\n{\"text\": \"four\"}\n"));
    for (int time = 0; time < 2; ++time) BOOST_TEST(same(training_text(data, words, 1, path)));
    data.skip_bad = false;
    BOOST_TEST(test::has(test::sentence_of<error>([&] { (void)training_text(data, words, 1, path); }), "line 2"));
    data = from("stories:100");
    std::filesystem::remove(path);
    BOOST_TEST(same(training_text(data, words, 1, path)));
    BOOST_TEST(!std::filesystem::exists(path));
}

BOOST_AUTO_TEST_CASE(text_is_counted_without_being_stored) {
    test::temporary_folder const folder;
    auto const data = from(folder.with("a.txt", std::string(5000, 'a')));
    tokenizer const words;
    auto const text = training_text(data, words, 1);
    packing_rule const rule{.K = 4, .seed = 1};
    auto const size = size_of_training_text(data, words, 1, rule, 64);
    BOOST_TEST(size.documents == text.documents());
    BOOST_TEST(size.tokens == text.tokens());
    BOOST_TEST(test::has(test::sentence_of<error>([&] { size_of_training_text(data, words, 1, rule, 1 << 24); }),
                         "the text has only"));
}

BOOST_AUTO_TEST_CASE(pairs_of_all_training_tokens_are_counted) {
    auto const data = from("stories:4000");
    tokenizer const words;
    auto const text = training_text(data, words, 1);
    packing_rule const rule{.K = 4, .seed = 3};
    auto const table = bigrams_of(text, words.vocabulary_size(), rule);
    bigram_table const whole(words.vocabulary_size(), packed_tokens(text, rule));
    for (token_id a = 0; a < words.vocabulary_size(); a += 5)
        for (token_id b = 0; b < words.vocabulary_size(); ++b)
            BOOST_REQUIRE(table.probability(b, a) == whole.probability(b, a));
}

// More than 2^24 tokens; some pairs occur only in the last document.
BOOST_AUTO_TEST_CASE(pairs_of_a_large_corpus_are_counted_to_the_last_document) {
    tokenizer const words;
    constexpr std::size_t documents = 17'000, size = 1000;
    static_assert(documents * size > std::size_t{1} << 24U);
    corpus text(words.specials());
    text.open().reserve(documents * size + 6);
    std::vector<token_id> const same(size, 5);
    for (std::size_t i = 0; i < documents; ++i) text.add(same);
    text.add(std::vector<token_id>{65, 66, 65, 67, 65, 67});
    auto const table = bigrams_of(text, words.vocabulary_size(), {.K = 4, .seed = 3});
    BOOST_TEST(table.probability(66, 65) == 1.0 / 3);
    BOOST_TEST(table.probability(67, 65) == 2.0 / 3);
    BOOST_TEST(table.probability(5, 5) == 0.999);
    BOOST_TEST(table.probability(words.specials().eos, 5) == 0.001);
}

BOOST_AUTO_TEST_CASE(malformed_documents_end_the_work_unless_they_are_skipped) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"two\"}\n"));
    for (auto const& path : {std::string(), folder.path("text.tokens")}) {
        try {
            (void)training_text(data, {}, 1, path);
            BOOST_ERROR("expected an error");
        } catch (error const& wrong) {
            BOOST_TEST((wrong.code() == errc::data));
            BOOST_TEST(wrong.path() == data.sources[0]);
            BOOST_TEST(wrong.place() == "line 2");
            BOOST_TEST(std::string(wrong.what()).starts_with(data.sources[0] + ", line 2: invalid JSON"));
            BOOST_TEST(std::string(wrong.what()).ends_with("} (--skip-bad skips and counts such text)"));
        }
    }
    data.skip_bad = true;
    BOOST_TEST(training_text(data, {}, 1).documents() == 2U);
}

BOOST_AUTO_TEST_CASE(skipped_documents_are_reported_again_when_the_ids_are_used_again) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"two\"}\n"));
    data.skip_bad = true;
    auto const path = folder.path("text.tokens");
    auto const said = [&] { return test::standard_error_of([&] { (void)training_text(data, {}, 1, path); }); };
    BOOST_TEST(test::has(said(), "training: 1 malformed documents skipped, by cause:"));
    BOOST_TEST(test::has(said(), "training: 1 malformed documents were skipped when the text was tokenised into"));
}

BOOST_AUTO_TEST_CASE(a_token_file_aside_leaves_the_one_of_another_text) {
    test::temporary_folder const folder;
    auto const data = from(folder.with("a.txt", "one"));
    auto const path = folder.path("text.tokens"), aside = folder.path("text.tokens.new");
    (void)training_text(data, {}, 1, path);
    auto const before = folder.content("text.tokens");
    (void)folder.with("text.tokens.new", "of a killed process");
    BOOST_TEST(training_text(data, {}, 1, path, aside).tokens() == 3U);
    BOOST_TEST(!std::filesystem::exists(aside));
    (void)folder.with("a.txt", "three");
    for (int time = 0; time < 2; ++time) BOOST_TEST(training_text(data, {}, 1, path, aside).tokens() == 5U);
    BOOST_TEST((folder.content("text.tokens") == before));
    BOOST_TEST(std::filesystem::exists(aside));
}

BOOST_AUTO_TEST_CASE(skip_bad_is_mentioned_only_where_it_helps) {
    test::temporary_folder const folder;
    auto const complaint = [](std::string const& spec, std::string const& held = "") {
        auto data = from(spec);
        data.holdout = held;
        return test::sentence_of<error>([&] { (void)training_text(data, {}, 1); });
    };
    std::filesystem::create_directory(folder.path("texts"));
    (void)folder.with("texts/empty.txt", "");
    BOOST_TEST(complaint(folder.path("texts")) ==
               folder.path("texts/empty.txt") + ": the file is empty: give a file with text in it (--skip-bad skips " +
                   "and counts such text)");
    BOOST_TEST(test::has(complaint(folder.with("latin1.txt", "abc\xe9 ")), "latin1.txt, byte 3: invalid UTF-8"));
    // A named file is like one of a folder.
    BOOST_TEST(complaint(folder.path("texts/empty.txt")) == complaint(folder.path("texts")));
    auto data = from(folder.path("texts/empty.txt"));
    data.sources.push_back(folder.with("full.txt", "abc"));
    data.skip_bad = true;
    BOOST_TEST(training_text(data, {}, 1).tokens() == 3U);
    // The file must exist, and the holdout must leave some text.
    for (auto const& said : {complaint(folder.path("none")), complaint(folder.with("a.txt", "a"), "6:0")}) {
        BOOST_TEST(!said.empty());
        BOOST_TEST(!test::has(said, "--skip-bad"), said);
    }
}

BOOST_AUTO_TEST_CASE(a_vocabulary_that_cannot_be_written_is_not_learned) {
    test::temporary_folder const folder;
    tokenizer_options options;
    options.data = from(folder.with("a.jsonl", "bad\n"));
    options.vocabulary = 300;
    auto const complaint = [&](std::string const& out) {
        options.out = out;
        return test::sentence_of<error>([&] { train_tokenizer(options); });
    };
    BOOST_TEST(test::has(complaint(folder.path("a.jsonl/x")), "a.jsonl: the directory cannot be created"));
    BOOST_TEST(test::has(complaint(folder.path("new/deep/x")), "a.jsonl, line 1: invalid JSON"));
    BOOST_TEST(std::filesystem::is_empty(folder.path("new/deep")));
    options.data = from("stories:4000");
    BOOST_TEST(complaint(folder.path("new/deep/x")) == "");
    BOOST_TEST(tokenizer_named(folder.path("new/deep/x")).vocabulary_size() == 300);
}

BOOST_AUTO_TEST_CASE(held_out_blocks_are_spread_over_all) {
    test::temporary_folder const folder;
    std::string lines;  // each document repeats its number
    for (int i = 0; i < 1000; ++i) {
        lines += "{\"text\": \"";
        for (int k = 0; k < 200; ++k) lines += std::to_string(i) + " ";
        lines += "\"}\n";
    }
    auto data = from(folder.with("a.jsonl", lines));
    data.holdout = "4:1";
    tokenizer const words;
    packing_rule const rule{.K = 4, .seed = 1};
    auto const all = heldout_blocks(data, words, rule, 64, 1'000'000);
    auto const some = heldout_blocks(data, words, rule, 64, 5000);
    BOOST_TEST(all.size() > 190'000U);
    BOOST_TEST(some.size() == 5000U / 64 * 64);
    std::string const text = words.decode(some);
    auto const holds_one_of = [&](int first, int last) {
        for (int i = first; i < last; ++i)
            if (text.find(" " + std::to_string(i) + " ") != std::string::npos) return true;
        return false;
    };
    for (int first = 0; first < 1000; first += 100) BOOST_TEST(holds_one_of(first, first + 100), first);

    std::vector<token_id> const counted{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    BOOST_TEST((spread_blocks(counted, 2, 6) == std::vector<token_id>{0, 0, 2, 2, 4, 4}));
    BOOST_TEST(spread_blocks(counted, 2, 1).size() == 2U);
    BOOST_TEST((spread_blocks(counted, 2, 100) == counted));
}

BOOST_AUTO_TEST_CASE(text_for_a_published_model_without_bos_has_none) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"three\"}\n"));
    tokenizer const words;
    auto const without = words.published(words.vocabulary_size(), false);
    stored_model model;
    model.description.kind = model_kind::autoregressive;
    auto const chosen = [&](tokenizer const& t) { return packing_for(packed_for::language_model, data, t, &model); };
    BOOST_TEST((chosen(without) == packing::unbroken));
    BOOST_TEST((chosen(words) == packing::padded));
    data.mode = "published";
    BOOST_TEST((chosen(without) == packing::published_language_model));
    data.mode = "unbroken";
    BOOST_TEST((chosen(words) == packing::unbroken));
    model.description.kind = model_kind::calm;
    BOOST_TEST(test::has(test::sentence_of<error>([&] { static_cast<void>(chosen(words)); }),
                         "packing 'unbroken' is for a source without BOS, EOS and PAD"));

    std::string seen;
    evaluation_blocks_of(data, words, {packing::unbroken, 1, 1},
                         3)([&](std::span<token_id const> block) { seen += words.decode(block) + "|"; });
    BOOST_TEST(seen == "one|thr|");
}
