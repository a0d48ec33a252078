// Ids of published families' kinds of tokenizer.json, equal to those of the package `tokenizers`. The files and texts
// are from tests/by_hand/tokenizers/make_fixtures.py, or in $CALM_TOKENIZERS; the ids of tiktoken from
// make_tiktoken.py.
#include <boost/test/unit_test.hpp>

#include <simdjson.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "calm/text/load_tokenizer.hpp"
#include "support/sentences.hpp"

using calm::token_id;
using calm::test::has;
using calm::test::sentence_of;

namespace {

std::string in_fixtures(std::string const& name) {
    char const* const other = std::getenv("CALM_TOKENIZERS");
    return (std::filesystem::path(other != nullptr ? other : CALM_FIXTURES_DIR "/tokenizers") / name).string();
}

struct known_text {
    std::string text;
    std::vector<token_id> ids;
};

// The texts for which a package has ids of a family. `tokenizers` drops bytes that the vocabulary lacks, so such texts
// have none.
std::vector<known_text> known_texts(std::string const& file_name, std::string_view family) {
    std::vector<known_text> all;
    std::ifstream file(in_fixtures(file_name));
    simdjson::dom::parser parser;
    for (std::string line; std::getline(file, line);) {
        simdjson::dom::element const one = parser.parse(line);
        simdjson::dom::array ids;
        if (one["ids"][family].get(ids) != simdjson::SUCCESS) continue;
        auto& last = all.emplace_back();
        last.text = one["text"].get_string().value();
        for (auto const id : ids) last.ids.push_back(static_cast<token_id>(id.get_int64().value()));
    }
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ids_of_each_family_match_the_package) {
    for (std::string const family : {"gpt2", "llama3", "smollm2", "qwen", "neox", "deepseek"}) {
        bool const normalizes = family == "qwen" || family == "neox";
        if (normalizes && !calm::detail::has_nfc) {
            auto const said =
                sentence_of<calm::error>([&] { (void)calm::load_tokenizer(in_fixtures(family + ".json")); });
            BOOST_TEST(has(said, "normalizer: NFC needs ICU"), said);
            continue;
        }
        auto const words = calm::load_tokenizer(in_fixtures(family + ".json"));
        auto const all = known_texts("texts.jsonl", family);
        BOOST_TEST(all.size() > 90, family);
        calm::token_stream stream(words);
        for (std::size_t n = 0; n < all.size(); ++n) {
            auto const& [text, ids] = all[n];
            BOOST_REQUIRE_MESSAGE(words.encode(text) == ids, family << ", text " << n << ": " << text);
            if (!normalizes) BOOST_REQUIRE(words.decode(ids) == text);
            std::vector<token_id> in_parts;
            for (std::size_t i = 0; i < text.size(); i += 1 + n % 7) stream.push(text.substr(i, 1 + n % 7), in_parts);
            stream.finish(in_parts);
            BOOST_REQUIRE_MESSAGE(in_parts == ids, family << ", in parts, text " << n << ": " << text);
        }
    }
}

BOOST_AUTO_TEST_CASE(ids_of_each_pattern_match_tiktoken) {
    struct known {
        std::string pattern;
        token_id bos, eos, pad;  // after the ranks
    };
    auto const path = in_fixtures("tiktoken.model");
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::load_tokenizer(path); }),
                   "give --pattern llama3, gpt2, cl100k"));
    std::set<std::string> fingerprints;
    std::set<std::vector<token_id>> cuts;
    for (auto const& [pattern, bos, eos, pad] :
         std::array{known{"llama3", 0, 1, 256}, known{"gpt2", 0, 0, 1}, known{"cl100k", 1, 1, 21},
                    known{"o200k", 1, 1, 21}, known{"qwen", 0, 0, 208}}) {
        if (pattern == "qwen" && !calm::detail::has_nfc) continue;
        auto const words = calm::load_tokenizer(path, pattern);
        auto const all = known_texts("tiktoken.jsonl", pattern);
        BOOST_TEST(all.size() > 90, pattern);
        std::vector<token_id> together;
        for (auto const& [text, ids] : all) {
            BOOST_REQUIRE_MESSAGE(words.encode(text) == ids, pattern << ": " << text);
            together.insert(together.end(), ids.begin(), ids.end());
        }
        cuts.insert(together);
        token_id const ranks = words.vocabulary_size() - pad - 1;
        BOOST_TEST(words.bos() == ranks + bos);
        BOOST_TEST(words.eos() == ranks + eos);
        BOOST_TEST(words.pad() == ranks + pad);
        BOOST_TEST(words.published(ranks + pad, std::nullopt).specials().bos_first == (pattern == "llama3"));
        BOOST_TEST(fingerprints.insert(words.fingerprint()).second, pattern);
    }
    BOOST_TEST(cuts.size() >= 3U);  // llama3 and cl100k have one pattern
    auto const said = [&](std::string const& file, std::string_view pattern) {
        return sentence_of<calm::error>([&] { (void)calm::load_tokenizer(in_fixtures(file), pattern); });
    };
    BOOST_TEST(has(said("tiktoken.model", "gpt4"), "pattern 'gpt4': expected llama3, gpt2, cl100k, o200k or qwen"));
    BOOST_TEST(has(said("gpt2.json", "gpt2"), "found a tokenizer.json, which states its own"));
}

BOOST_AUTO_TEST_CASE(prompts_of_each_family_begin_as_its_post_processor_does) {
    struct known {
        std::string family;
        bool bos_first;
        token_id more;  // rows of the table
    };
    for (auto const& [family, bos_first, more] : std::array{known{"gpt2", false, 0}, known{"llama3", true, 0},
                                                            known{"smollm2", false, 0}, known{"deepseek", true, 100}}) {
        auto const words = calm::load_tokenizer(in_fixtures(family + ".json"));
        auto const spare = words.pad() + 1 == words.vocabulary_size() ? 1 : 0;  // a PAD that the file lacks
        auto const model = words.published(words.vocabulary_size() - spare + more, std::nullopt);
        BOOST_TEST(model.specials().bos_first == bos_first, family);
        BOOST_TEST(model.bos() == words.bos());
    }
}
