#include "text/text_data.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>

#include "calm/text/token_cache.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace calm;
using namespace calm::apps;

// JSON lines of more than one mebibyte, the size from which files get a cache.
std::string many_lines() {
    std::string all;
    for (int i = 0; all.size() < 1'100'000; ++i)
        all += "{\"text\": \"" + std::to_string(i) + std::string(1000, ' ') + "\"}\n";
    return all;
}

data_options from(std::string const& spec) {
    data_options data;
    data.sources = {spec};
    return data;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ids_of_large_files_are_kept_where_they_are_asked_to_be) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", many_lines()));
    tokenizer const words;
    data.cache = "none";
    auto const plain = training_text(data, words, 1);
    BOOST_TEST(!std::filesystem::exists(data.sources[0] + ".calm-tokens"));
    data.cache = "";
    BOOST_TEST(training_text(data, words, 1).tokens() == plain.tokens());
    BOOST_TEST(std::filesystem::exists(data.sources[0] + ".calm-tokens"));
    data.cache = folder.path("caches");
    BOOST_TEST(training_text(data, words, 1).documents() == plain.documents());
    BOOST_TEST(!std::filesystem::is_empty(data.cache));
}

// A dry run counts text and writes nothing.
BOOST_AUTO_TEST_CASE(text_is_counted_from_a_cache_that_is_there_and_none_is_made) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", many_lines()));
    auto const cache = data.sources[0] + ".calm-tokens";
    tokenizer const words;
    auto const text = training_text(data, words, 1);
    auto const kept = folder.content("a.jsonl.calm-tokens");
    packing_rule const rule{.K = 4, .seed = 1};
    auto const counted = [&](std::size_t documents, std::size_t tokens) {
        auto const size = size_of_training_text(data, words, 1, rule, 64);
        BOOST_TEST(size.documents == documents);
        BOOST_TEST(size.tokens == tokens);
    };
    data.writes_cache = false;
    counted(text.documents(), text.tokens());
    BOOST_TEST((folder.content("a.jsonl.calm-tokens") == kept));
    // A cache that claims to be valid but has other ids: its counts are used, so the text was not read.
    std::string why;
    auto const facts = token_file::open(cache, words.vocabulary_size(), why)->facts();
    struct stat const now = detail::facts_of_file(data.sources[0]);
    token_file_writer writer(
        cache, [] {}, &now);
    for (int i = 0; i < 3; ++i) writer.add(std::vector<token_id>(100, 65), entry_use::both);
    writer.commit(facts);
    counted(3, 300);
    static_cast<void>(folder.with("a.jsonl.calm-tokens", "no tokens"));  // not valid: left unchanged
    counted(text.documents(), text.tokens());
    BOOST_TEST(folder.content("a.jsonl.calm-tokens") == "no tokens");
    std::filesystem::remove(cache);
    counted(text.documents(), text.tokens());
    BOOST_TEST(!std::filesystem::exists(cache));
    BOOST_TEST(test::has(test::sentence_of<error>([&] { size_of_training_text(data, words, 1, rule, 1 << 24); }),
                         "the text has only"));
}

BOOST_AUTO_TEST_CASE(pairs_of_all_training_tokens_are_counted) {
    auto const data = from("stories:4000");
    tokenizer const words;
    auto const text = training_text(data, words, 1);
    packing_rule const rule{.K = 4, .seed = 3};
    auto const table = bigrams_of(text, words, rule);
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
    auto const table = bigrams_of(text, words, {.K = 4, .seed = 3});
    BOOST_TEST(table.probability(66, 65) == 1.0 / 3);
    BOOST_TEST(table.probability(67, 65) == 2.0 / 3);
    BOOST_TEST(table.probability(5, 5) == 0.999);
    BOOST_TEST(table.probability(words.specials().eos, 5) == 0.001);
}

BOOST_AUTO_TEST_CASE(malformed_documents_end_the_work_unless_they_are_skipped) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"two\"}\n"));
    for (std::string const cache : {"", "none"}) {
        data.cache = cache;
        try {
            (void)training_text(data, {}, 1);
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

BOOST_AUTO_TEST_CASE(only_what_could_be_left_out_speaks_of_it) {
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
    // A single file must contain text, and the holdout must leave some.
    for (auto const& said : {complaint(folder.path("texts/empty.txt")), complaint(folder.path("none")),
                             complaint(folder.with("a.txt", "a"), "6:0")}) {
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
    data.cache = "none";
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
