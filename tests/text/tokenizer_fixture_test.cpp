#include <boost/test/unit_test.hpp>

#include <simdjson.h>

#include <fstream>
#include <string>
#include <vector>

#include "calm/text/sha256.hpp"
#include "calm/text/tokenizer.hpp"
#include "shared_data.hpp"

using calm::token_id;
using calm::tokenizer;

BOOST_AUTO_TEST_CASE(llama3_encodes_as_published) {
    auto const model = calm::test::shared_file("data/llama3.tokenizer.model");
    auto const cases = calm::test::fixture("tokenizer/llama3.jsonl");
    if (!model || !cases) {
        BOOST_TEST_MESSAGE("skipped: the Llama-3 vocabulary or its cases are not here");
        return;
    }
    auto const llama = tokenizer::load(*model);
    BOOST_TEST(llama.vocabulary_size() == 128257);
    BOOST_TEST(llama.bos() == 128000);
    BOOST_TEST(llama.eos() == 128001);
    BOOST_TEST(llama.pad() == 128256);
    BOOST_TEST(llama.bytes(128100).empty());
    std::ifstream file(*cases);
    simdjson::dom::parser parser;
    int number = 0;
    for (std::string line; std::getline(file, line); ++number) {
        simdjson::dom::element const one = parser.parse(line);
        std::vector<token_id> expected;
        for (auto const id : one["ids"].get_array()) expected.push_back(static_cast<token_id>(id.get_int64().value()));
        std::string const text(one["text"].get_string().value());
        BOOST_REQUIRE_MESSAGE(llama.encode(text) == expected, "case " << number << ": " << line.substr(0, 100));
        BOOST_REQUIRE(llama.decode(expected) == text);
    }
    BOOST_TEST(number > 0);
}

BOOST_AUTO_TEST_CASE(wikitext_has_the_published_ids) {
    auto const model = calm::test::shared_file("data/llama3.tokenizer.model");
    auto const text = calm::test::shared_file("data/wikitext_document_level-test.json");
    if (!model || !text) {
        BOOST_TEST_MESSAGE("skipped: WikiText is not here");
        return;
    }
    auto const llama = tokenizer::load(*model);
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
