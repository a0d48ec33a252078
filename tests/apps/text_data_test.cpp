#include "text/text_data.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace calm;
using namespace calm::apps;

// JSON lines of more than the mebibyte from which a file has a cache.
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

BOOST_AUTO_TEST_CASE(malformed_documents_end_the_work_unless_they_are_skipped) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"two\"}\n"));
    BOOST_TEST(test::has(test::sentence_of<error>([&] { (void)training_text(data, {}, 1); }), "a.jsonl, line 2"));
    data.skip_bad = true;
    BOOST_TEST(training_text(data, {}, 1).documents() == 2U);
}

BOOST_AUTO_TEST_CASE(held_out_blocks_are_the_first_of_all) {
    test::temporary_folder const folder;
    auto data = from(folder.with("a.jsonl", many_lines()));
    data.cache = "none";
    data.holdout = "4:1";
    tokenizer const words;
    packing_rule const rule{.K = 4, .seed = 1};
    auto const all = heldout_blocks(data, words, rule, 64, 1'000'000);
    auto const some = heldout_blocks(data, words, rule, 64, 5000);
    BOOST_TEST(all.size() > 200'000U);
    BOOST_TEST(some.size() == 5000U / 64 * 64);
    BOOST_TEST(std::equal(some.begin(), some.end(), all.begin()));
}
