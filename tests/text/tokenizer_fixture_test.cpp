#include <boost/test/unit_test.hpp>

#include <simdjson.h>

#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "calm/base/detail/sha256.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "shared_data.hpp"
#include "support/sanitized.hpp"
#include "tokenizer_files.hpp"

using calm::token_id;
using calm::tokenizer;

namespace {

struct published_case {
    std::string text;
    std::vector<token_id> ids;
};

std::vector<published_case> published_cases(std::string const& path) {
    std::vector<published_case> cases;
    std::ifstream file(path);
    simdjson::dom::parser parser;
    for (std::string line; std::getline(file, line);) {
        simdjson::dom::element const one = parser.parse(line);
        auto& last = cases.emplace_back();
        last.text = one["text"].get_string().value();
        for (auto const id : one["ids"].get_array()) last.ids.push_back(static_cast<token_id>(id.get_int64().value()));
    }
    return cases;
}

// The tokenizer.json published with Llama 3: its ranks, and its 256 special tokens by name.
std::string llama3_json(tokenizer const& llama, bool as_pairs) {
    calm::detail::token_table table;
    for (token_id id = 0; id < 128000; ++id) table.add(llama.bytes(id));
    auto file = calm::test::json_of(table, as_pairs);
    file.added_tokens = "[" + calm::test::json_added(128000, "<|begin_of_text|>") + "," +
                        calm::test::json_added(128001, "<|end_of_text|>");
    for (token_id id = 128002; id < 128256; ++id)
        file.added_tokens +=
            "," + calm::test::json_added(id, "<|reserved_special_token_" + std::to_string(id - 128002) + "|>");
    file.added_tokens += "]";
    return file.text();
}

}  // namespace

BOOST_AUTO_TEST_CASE(llama3_encodes_as_published) {
    auto const model = calm::test::shared_file("data/llama3.tokenizer.model");
    auto const cases = calm::test::fixture("tokenizer/llama3.jsonl");
    if (!model || !cases) return;
    auto const llama = calm::load_tokenizer(*model);
    BOOST_TEST(llama.vocabulary_size() == 128257);
    BOOST_TEST(llama.bos() == 128000);
    BOOST_TEST(llama.eos() == 128001);
    BOOST_TEST(llama.pad() == 128256);
    BOOST_TEST(llama.bytes(128100).empty());
    // A published model has no row for PAD.
    auto const published = llama.published(128256, std::nullopt);
    BOOST_TEST(published.vocabulary_size() == 128256);
    BOOST_TEST(published.pad() == -1);
    BOOST_TEST(llama.published(128257, std::nullopt).pad() == 128256);
    BOOST_TEST(llama.fingerprint() == "adb67458c314f5a218d4ae572ae6a1531f027d724595907227302c25bde7563b");
    auto const all = published_cases(*cases);
    BOOST_TEST(!all.empty());
    for (auto const& one : all) {
        BOOST_REQUIRE_MESSAGE(llama.encode(one.text) == one.ids, "text: " << one.text.substr(0, 100));
        BOOST_REQUIRE(llama.decode(one.ids) == one.text);
    }
    for (bool const as_pairs : {false, true}) {
        auto const again = calm::parse_tokenizer(llama3_json(llama, as_pairs), "tokenizer.json");
        BOOST_TEST((again.specials() == llama.specials()));
        BOOST_TEST(again.fingerprint() == llama.fingerprint());
        for (auto const& one : all) BOOST_REQUIRE(again.encode(one.text) == one.ids);
    }
}

BOOST_AUTO_TEST_CASE(runs_of_one_kind_take_time_in_proportion) {
    auto const model = calm::test::shared_file("data/llama3.tokenizer.model");
    if (!model) return;
    auto const llama = calm::load_tokenizer(*model);
    for (std::string const unit : {"a", "z", "ab", " ", "1", "\n", "\t", "\r\n", "!", "é", "中", "\xff", "\xc3"}) {
        std::string text;
        while (text.size() < std::size_t{1} << (calm::test::is_sanitized ? 17 : 20)) text += unit;
        auto const start = std::clock();  // CPU time of this process: other load does not count
        auto const ids = llama.encode(text);
        double const seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        BOOST_TEST(llama.decode(ids) == text);
        BOOST_TEST(seconds < 10, "a run of \"" << unit << "\" took " << seconds << " s");
    }
}

BOOST_AUTO_TEST_CASE(wikitext_has_the_published_ids) {
    auto const model = calm::test::shared_file("data/llama3.tokenizer.model");
    auto const text = calm::test::shared_file("data/wikitext_document_level-test.json");
    if (!model || !text) return;
    auto const llama = calm::load_tokenizer(*model);
    simdjson::dom::parser parser;
    calm::sha256 hash;
    std::size_t count = 0;
    std::ifstream file(*text);
    for (std::string line; std::getline(file, line);) {
        simdjson::dom::element const one = parser.parse(line);
        auto const ids = llama.encode(one["text"].get_string().value());
        for (token_id const id : ids) hash.add_u32(static_cast<std::uint32_t>(id));
        count += ids.size();
    }
    BOOST_TEST(count == 289083);
    BOOST_TEST(hash.hex() == "f04797d980253b779857e7067c4415013e1d3a6114833a83f173e9a8fb892148");
}
