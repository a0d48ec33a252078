#include "calm/text/token_cache.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>

#include <array>
#include <cstring>
#include <fstream>
#include <span>

#include "calm/text/cached_corpus.hpp"
#include "compressed.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::holdout;
using calm::split;
using calm::test::has;
using strings = std::vector<std::string>;

// Caches files of any size and keeps the messages.
struct cache_of_all : calm::token_cache {
    strings told;
    cache_of_all() {
        least_bytes = 0;
        log = [this](std::string const& sentence) { told.push_back(sentence); };
    }
};

std::string lines(std::size_t n, std::string const& word = "story") {
    std::string all;
    for (std::size_t i = 0; i < n; ++i) all += "{\"text\": \"" + word + " " + std::to_string(i) + "\"}\n";
    return all;
}

strings texts_of(calm::corpus const& made, calm::tokenizer const& words) {
    strings all;
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < made.documents(); ++i) {
        all.push_back(words.decode(made.document(i)));
        tokens += made.document(i).size();
        BOOST_TEST(made.size(i) == made.document(i).size());
    }
    BOOST_TEST(made.tokens() == tokens);
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_cached_corpus_is_the_corpus_for_every_selection) {
    calm::test::temporary_folder const folder;
    std::string over_long = "w";
    for (int i = 0; i < 20'500; ++i) over_long += " w" + std::to_string(i % 10);
    std::string const long_line = "{\"text\": \"" + over_long + "\"}\n";
    strings const specs{folder.with("a.jsonl", lines(3) + long_line + lines(4)),
                        "stories:500",
                        folder.with("b.txt", over_long),
                        folder.with("c.jsonl.gz", calm::test::gzip(lines(20))),
                        folder.path("a.jsonl"),
                        folder.with("d.jsonl", lines(2, ""))};
    calm::tokenizer const words;
    cache_of_all cache;
    for (int round = 0; round < 2; ++round)
        for (auto const use : {split::train, split::heldout})
            for (auto const* const held : {"", "6:5", "2:1", "29:3"}) {
                calm::document_selection selection{.use = use};
                if (*held != '\0') selection.held = holdout::parse(held);
                auto const plain = calm::build_corpus(specs, words, selection);
                auto const cached = calm::build_corpus(specs, words, selection, cache);
                BOOST_TEST((texts_of(cached, words) == texts_of(plain, words)), held);
                BOOST_TEST(cached.tokens() == plain.tokens());
            }
    BOOST_TEST(cache.told.size() == 4U);  // once per file
    BOOST_TEST(has(cache.told[0], "tokenising " + specs[0] + " into " + specs[0] + ".calm-tokens: there is none yet"));
}

BOOST_AUTO_TEST_CASE(a_stale_or_damaged_cache_is_made_anew_aloud) {
    calm::test::temporary_folder const folder;
    auto const path = folder.with("a.jsonl", lines(5));
    calm::tokenizer const words;
    cache_of_all cache;
    auto const why = [&](calm::tokenizer const& with) {
        cache.told.clear();
        auto const plain = texts_of(calm::build_corpus(strings{path}, with, {}), with);
        BOOST_TEST((texts_of(calm::build_corpus(strings{path}, with, {}, cache), with) == plain));
        std::string said;
        for (auto const& sentence : cache.told) said += sentence;
        cache.told.clear();
        BOOST_TEST((texts_of(calm::build_corpus(strings{path}, with, {}, cache), with) == plain));
        BOOST_TEST(cache.told.empty());
        return said;
    };
    BOOST_TEST(has(why(words), "there is none yet"));
    BOOST_TEST(why(words) == "");
    auto const learned = calm::tokenizer::train(strings{lines(50)}, 265);
    BOOST_TEST(has(why(learned), "it belongs to another tokenizer"));
    BOOST_TEST(has(why(words), "its ids belong to another vocabulary"));
    (void)folder.with("a.jsonl", lines(5, "stary"));  // the same size
    BOOST_TEST(has(why(words), "the text has changed"));
    (void)folder.with("a.jsonl", lines(6));
    BOOST_TEST(has(why(words), "the text has changed"));
    auto const kept = path + ".calm-tokens";
    std::filesystem::resize_file(kept, 1000);
    BOOST_TEST(has(why(words), "its length does not match its header"));
    (void)folder.with("a.jsonl.calm-tokens", "something else");
    BOOST_TEST(has(why(words), "it ends early"));
    // A new modification time alone does not mean a new text.
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(5));
    BOOST_TEST(why(words) == "");
    BOOST_TEST(why(words) == "");
    cache.told.clear();
    (void)calm::build_corpus(strings{path}, words, {.limits = {.line = 500}}, cache);
    BOOST_TEST(has(cache.told.at(0), "other limits"));
}

BOOST_AUTO_TEST_CASE(a_text_that_changes_meanwhile_is_refused_though_its_time_is_put_back) {
    calm::test::temporary_folder const folder;
    auto const path = folder.with("a.jsonl", lines(5));
    cache_of_all cache;
    cache.log = [&](std::string const&) {
        auto const time = std::filesystem::last_write_time(path);
        (void)folder.with("a.jsonl", lines(5, "stary"));  // the same size
        std::filesystem::last_write_time(path, time);
    };
    auto const sentence =
        calm::test::sentence_of<calm::error>([&] { (void)calm::build_corpus(strings{path}, {}, {}, cache); });
    BOOST_TEST(has(sentence, "the file changed while it was read"));
}

BOOST_AUTO_TEST_CASE(caches_lie_where_they_are_told_to) {
    calm::test::temporary_folder const folder;
    auto const path = folder.with("a.jsonl", lines(5));
    std::filesystem::create_directory(folder.path("other"));
    auto const same_name = folder.with("other/a.jsonl", lines(6));
    cache_of_all cache;
    cache.folder = folder.path("new/caches");
    calm::tokenizer const words;
    BOOST_TEST(calm::build_corpus(strings{path, same_name}, words, {}, cache).documents() == 11U);
    BOOST_TEST(!std::filesystem::exists(path + ".calm-tokens"));
    BOOST_TEST(std::filesystem::exists(cache.path_for(path)));
    BOOST_TEST(cache.path_for(path) != cache.path_for(same_name));
    BOOST_TEST(cache.path_for(path).starts_with(folder.path("new/caches/a.jsonl.")));
    BOOST_TEST(cache.told.size() == 2U);
    cache.least_bytes = 1'000'000;
    BOOST_TEST((cache.tokens_of(path, words, {}) == nullptr));
}

BOOST_AUTO_TEST_CASE(where_no_cache_can_be_it_is_said_once) {
    calm::test::temporary_folder const folder;
    strings const specs{folder.with("a.jsonl", lines(5)), folder.with("b.jsonl", lines(5))};
    cache_of_all cache;
    cache.folder = folder.path("a.jsonl");  // a file, which stops even root
    BOOST_TEST(calm::build_corpus(specs, {}, {}, cache).documents() == 10U);
    BOOST_TEST(cache.told.size() == 1U);
    BOOST_TEST(has(cache.told.at(0), "texts are tokenised each time and held in memory, because the cache cannot be"));
}

BOOST_AUTO_TEST_CASE(skips_are_counted_from_the_cache_too) {
    calm::test::temporary_folder const folder;
    strings const specs{folder.with("a.jsonl", lines(3) + "bad\n" + lines(2) + "{}\n")};
    calm::tokenizer const words;
    cache_of_all cache;
    auto const refused = [&] {
        return calm::test::sentence_of<calm::error>([&] { (void)calm::build_corpus(specs, words, {}, cache); });
    };
    BOOST_TEST(has(refused(), "a.jsonl, line 4: invalid JSON"));
    BOOST_TEST(!std::filesystem::exists(specs[0] + ".calm-tokens"));
    BOOST_TEST(!std::filesystem::exists(specs[0] + ".calm-tokens.partial"));
    std::string first;
    for (int round = 0; round < 3; ++round) {
        calm::skipped_documents skipped;
        BOOST_TEST(calm::build_corpus(specs, words, {.skip = &skipped}, cache).documents() == 5U);
        BOOST_TEST(skipped.count == 2U);
        BOOST_TEST(has(skipped.causes.at(0).first, "a.jsonl, line 4: invalid JSON"));
    }
    BOOST_TEST(has(refused(), "a.jsonl, line 4: invalid JSON"));
}

BOOST_AUTO_TEST_CASE(a_cache_is_open_to_nobody_that_its_text_is_closed_to) {
    calm::test::temporary_folder const folder;
    namespace fs = std::filesystem;
    auto const path = folder.with("a.jsonl", lines(5));
    auto const kept = path + ".calm-tokens";
    cache_of_all cache;
    auto const mode_of = [&](unsigned mode) {
        fs::permissions(path, static_cast<fs::perms>(mode));
        (void)calm::build_corpus(strings{path}, {}, {}, cache);
        return static_cast<unsigned>(fs::status(kept).permissions());
    };
    BOOST_TEST(mode_of(0600) == 0600U);
    BOOST_TEST(mode_of(0644) == 0600U);  // made before
    fs::remove(kept);
    BOOST_TEST(mode_of(0666) == 0644U);
    cache.told.clear();
    BOOST_TEST(mode_of(0640) == 0640U);
    BOOST_TEST(has(cache.told.at(0), "its permissions are wider than the permissions of the text allow"));
    // If the cache gets another group than the text, the group counts as everyone.
    struct stat text {};
    text.st_gid = 7;
    for (auto const& [mode, own, other] :
         {std::array{0640U, 0640U, 0600U}, {0644U, 0644U, 0644U}, {0604U, 0604U, 0604U}}) {
        text.st_mode = mode;
        BOOST_TEST(calm::detail::permissions_like(text, 7) == own);
        BOOST_TEST(calm::detail::permissions_like(text, 8) == other);
    }
}

// Its checksums are right and match the text, but a cache unpacked with a folder was not made here.
BOOST_AUTO_TEST_CASE(a_forged_cache_is_not_believed) {
    calm::test::temporary_folder const folder;
    namespace fs = std::filesystem;
    auto const path = folder.with("a.jsonl", lines(5));
    auto const kept = path + ".calm-tokens";
    calm::tokenizer const words;
    cache_of_all cache;
    auto const made = [&] { return texts_of(calm::build_corpus(strings{path}, words, {}, cache), words); };
    auto const right = made();
    auto const genuine = folder.content("a.jsonl.calm-tokens");
    // Other ids of the same length, with matching checksums.
    auto forged = genuine;
    calm::token_file_facts facts;
    std::memcpy(&facts, forged.data(), sizeof facts);
    forged[sizeof facts] = static_cast<char>(forged[sizeof facts] ^ 1);
    calm::portion_sum sum;
    sum.add(std::as_bytes(std::span(forged)).subspan(sizeof facts));
    facts.body = sum.value();
    auto const put = [&] {
        facts.header = calm::detail::header_sum(facts);
        std::memcpy(forged.data(), &facts, sizeof facts);
        fs::remove(kept);
        (void)folder.with("taken", "");  // takes the inode of the removed file
        (void)folder.with("a.jsonl.calm-tokens", forged);
        fs::permissions(kept, static_cast<fs::perms>(0600));
    };
    put();
    std::string why;
    BOOST_REQUIRE(calm::token_file::open(kept, words.vocabulary_size(), why));
    cache.told.clear();
    BOOST_TEST((made() == right));
    BOOST_TEST(has(cache.told.at(0), "it was not made here"));
    // The right inode, but made at another time.
    put();
    struct stat there {};
    BOOST_REQUIRE(::stat(kept.c_str(), &there) == 0);
    facts.inode = there.st_ino;
    facts.made = calm::detail::nanoseconds(there.st_ctim) - 60'000'000'000;
    facts.header = calm::detail::header_sum(facts);
    std::fstream file(kept, std::ios::binary | std::ios::in | std::ios::out);
    file.write(reinterpret_cast<char const*>(&facts), sizeof facts);
    file.close();
    cache.told.clear();
    BOOST_TEST((made() == right));
    BOOST_TEST(has(cache.told.at(0), "it was not made here"));
    // A cache that others may write.
    fs::permissions(kept, static_cast<fs::perms>(0666));
    fs::permissions(path, static_cast<fs::perms>(0666));
    cache.told.clear();
    BOOST_TEST((made() == right));
    BOOST_TEST(has(cache.told.at(0), "its permissions are wider than the permissions of the text allow"));
}
