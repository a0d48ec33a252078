#include "calm/text/cached_corpus.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <memory>

#include "calm/text/block_reader.hpp"
#include "calm/text/packed_blocks.hpp"
#include "support/sanitized.hpp"
#include "support/temporary_folder.hpp"

namespace {

using strings = std::vector<std::string>;

using calm::test::is_sanitized;

// The peak memory in MiB of a child process that makes the call, and whether the call returned true.
template <class Call> std::pair<long, bool> peak_of(Call const& call) {
    pid_t const child = ::fork();
    if (child == 0) {
        bool good = false;
        try {
            good = call();
        } catch (std::exception const& wrong) {
            std::fprintf(stderr, "%s\n", wrong.what());
        }
        std::fflush(nullptr);
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    struct rusage usage {};
    ::wait4(child, &status, 0, &usage);
    return {usage.ru_maxrss / 1024, WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

// Writes at least `size` bytes of stories as JSON lines; the stories repeat.
void write_stories(std::string const& path, std::size_t size) {
    std::string some;
    for (std::uint64_t i = 0; some.size() < 1'000'000; ++i) {
        std::string text;
        for (char const c : calm::story(1, calm::split::train, i)) {
            if (c == '"') text += '\\';
            text += c == '\n' ? std::string("\\n") : std::string(1, c);
        }
        some += "{\"text\": \"" + text + "\"}\n";
    }
    std::ofstream file(path, std::ios::binary);
    for (std::size_t written = 0; written < size; written += some.size()) file << some;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_large_corpus_is_not_held_in_memory) {
    std::size_t const megabytes = is_sanitized ? 8 : 256;
    calm::test::temporary_folder const folder;
    strings const specs{folder.path("a.jsonl")};
    write_stories(specs[0], megabytes << 20);
    auto const words = calm::train_tokenizer(strings{"stories:100000"}, 500, {});
    calm::packing_rule const rule{.K = 4, .seed = 5};
    constexpr std::size_t block_tokens = 1024;
    calm::token_cache cache;
    std::size_t tokens = 0;

    auto const make = [&] { return calm::build_corpus(specs, words, {}, cache); };
    auto const [peak, made] = peak_of([&] { return make().tokens() > megabytes << 16; });
    BOOST_TEST(made);
    auto const [peak_of_epoch, read] = peak_of([&] {
        auto const text = make();
        calm::block_reader blocks(text, rule, block_tokens);
        std::vector<calm::token_id> block(block_tokens);
        for (auto left = blocks.blocks_in(0); left > 0; --left) {
            blocks.next(block);
            tokens += block.size();
        }
        return blocks.position().epoch == 0 && tokens > text.tokens();
    });
    BOOST_TEST(read);
    // As evaluation blocks: from the cache, or from the text if there is no cache.
    auto const [peak_of_blocks, visited] = peak_of([&] {
        auto const ids = std::make_shared<calm::document_ids>(specs, words, calm::document_selection{}, &cache);
        std::size_t blocks = 0;
        calm::blocks_of(ids, rule, block_tokens)([&](std::span<calm::token_id const>) { ++blocks; });
        return blocks * block_tokens > megabytes << 16;
    });
    BOOST_TEST(visited);
    std::filesystem::remove(cache.path_for(specs[0]));
    cache.makes = false;
    write_stories(specs[0], megabytes << 18);  // smaller, to be read faster; its ids still exceed the limit
    auto const [peak_of_size, counted] = peak_of([&] {
        calm::document_ids text(specs, words, {}, &cache);
        return size_of(text, rule, block_tokens).tokens > megabytes << 14;
    });
    BOOST_TEST(counted);
    BOOST_TEST(!std::filesystem::exists(cache.path_for(specs[0])));
    BOOST_TEST_MESSAGE("MiB to make " << peak << ", to read an epoch " << peak_of_epoch << ", blocks " << peak_of_blocks
                                      << ", to count " << peak_of_size);
    if (is_sanitized) return;
    BOOST_TEST(peak < 150);
    BOOST_TEST(peak_of_epoch < 150);
    BOOST_TEST(peak_of_blocks < 150);
    BOOST_TEST(peak_of_size < 50);
}

// For training and evaluation, with and without a cache, with one document of more ids than a chunk.
BOOST_AUTO_TEST_CASE(documents_that_are_visited_are_those_of_a_corpus) {
    calm::test::temporary_folder const folder;
    std::string const words_of_text = "many words and more of them ";
    std::string text;
    while (text.size() < 2'500'000) text += words_of_text;
    strings const specs{folder.with("long.txt", text), folder.path("a.jsonl"), "stories:2000"};
    write_stories(specs[1], 1);
    calm::tokenizer const words;
    calm::token_cache cache;
    cache.least_bytes = 0;
    for (auto const use : {calm::split::train, calm::split::heldout})
        for (auto* const kept : {static_cast<calm::token_cache*>(nullptr), &cache}) {
            calm::document_selection const selection{.use = use, .held = calm::holdout::parse("3:0")};
            auto const held = calm::build_corpus(specs, words, selection);
            calm::document_ids documents(specs, words, selection, kept);
            for (int visit = 0; visit < 2; ++visit) {
                std::size_t document = 0;
                std::size_t done = 0;
                bool same = true;
                documents.visit([&](calm::document_portion const& portion) {
                    auto const ids = held.document(document);
                    same = same && portion.size == ids.size() && portion.first == done &&
                           std::equal(portion.ids.begin(), portion.ids.end(), ids.begin() + static_cast<long>(done));
                    done = portion.is_last() ? 0 : done + portion.ids.size();
                    document += portion.is_last();
                });
                BOOST_TEST(same);
                BOOST_TEST(document == held.documents());
            }
            calm::packing_rule const rule{.K = 4, .seed = 5};
            auto const size = size_of(documents, rule, 64);
            BOOST_TEST(size.documents == held.documents());
            BOOST_TEST(size.tokens == held.tokens());
            std::vector<calm::token_id> blocks;
            auto const shared = std::make_shared<calm::document_ids>(specs, words, selection, kept);
            calm::blocks_of(shared, rule, 64)([&](std::span<calm::token_id const> block) {
                blocks.insert(blocks.end(), block.begin(), block.end());
            });
            BOOST_TEST((blocks == calm::evaluation_blocks(held, rule, 64)));
        }
    calm::document_ids little(strings{"stories:10"}, words, {});
    BOOST_CHECK_THROW(static_cast<void>(size_of(little, {.K = 4}, 1 << 20)), calm::error);
}

// Small files around a large one: their ids are held in memory only while they are few.
BOOST_AUTO_TEST_CASE(ids_of_many_small_files_are_kept_on_the_disk_without_a_name) {
    calm::test::temporary_folder const folder;
    strings specs{"stories:3000"};
    for (int i = 0; i < 30; ++i) {
        std::string text = "document " + std::to_string(i);
        while (text.size() < 100 * static_cast<std::size_t>(i % 7)) text += " and more of it";
        specs.push_back(folder.with("small-" + std::to_string(i) + ".txt", text));
        if (i == 11) specs.push_back(folder.path("large.jsonl"));
    }
    write_stories(folder.path("large.jsonl"), 1);
    calm::tokenizer const words;
    calm::token_cache cache;
    strings told;
    cache.log = [&](std::string const& sentence) { told.push_back(sentence); };
    cache.least_bytes = 500'000;
    cache.most_held = 2000;
    auto const files = [&] {
        auto const all = std::filesystem::directory_iterator(folder.path(""));
        return std::distance(begin(all), end(all));
    };
    auto const same = [&](calm::corpus const& made) {
        auto const plain = calm::build_corpus(specs, words, {});
        BOOST_TEST(made.documents() == plain.documents());
        BOOST_TEST(made.tokens() == plain.tokens());
        std::size_t differ = 0;
        for (std::size_t i = 0; i < plain.documents(); ++i) {
            auto const a = made.document(i), b = plain.document(i);
            differ += !std::equal(a.begin(), a.end(), b.begin(), b.end()) || made.size(i) != plain.size(i);
        }
        BOOST_TEST(differ == 0U);
        return plain.held();
    };
    auto const made = calm::build_corpus(specs, words, {}, cache);
    auto const all = same(made);
    BOOST_TEST(made.held() <= cache.most_held);
    BOOST_TEST(all > 10 * cache.most_held);
    BOOST_TEST(files() == 32);  // with the cache of the large one
    BOOST_TEST(told.size() == 1U);

    cache.makes = false;
    BOOST_TEST(calm::build_corpus(specs, words, {}, cache).held() > cache.most_held);
    // If nothing can be written, this is reported once and the ids stay in memory.
    cache.makes = true;
    cache.folder = folder.with("no-folder", "");
    auto const held = calm::build_corpus(specs, words, {}, cache);
    BOOST_TEST(same(held) == held.held());
    BOOST_TEST_REQUIRE(told.size() == 2U);
    BOOST_TEST(told.back().find("held in memory, because the cache cannot be written") != std::string::npos,
               told.back());
}

BOOST_AUTO_TEST_CASE(malformed_documents_are_counted_once) {
    calm::test::temporary_folder const folder;
    strings const specs{folder.with("a.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"two\"}\n")};
    calm::tokenizer const words;
    calm::skipped_documents skipped;
    calm::document_ids documents(specs, words, {.skip = &skipped});
    for (int visit = 0; visit < 3; ++visit) {
        std::size_t count = 0;
        documents.visit([&](calm::document_portion const&) { ++count; });
        BOOST_TEST(count == 2U);
        BOOST_TEST(skipped.count == 1U);
    }
}

BOOST_AUTO_TEST_CASE(blocks_of_a_cached_corpus_are_those_of_one_in_memory) {
    calm::test::temporary_folder const folder;
    strings const specs{folder.path("a.jsonl")};
    write_stories(specs[0], 1);
    calm::tokenizer const words;
    calm::token_cache cache;
    cache.least_bytes = 0;
    auto const kept = calm::build_corpus(specs, words, {}, cache);
    auto const held = calm::build_corpus(specs, words, {});
    calm::packing_rule const rule{.K = 2, .seed = 5};
    std::vector<calm::token_id> a(512), b(512), c(512);
    calm::block_reader of_kept(kept, rule, 512);
    calm::block_reader of_held(held, rule, 512);
    std::uint64_t const blocks = of_kept.blocks_in(0);
    BOOST_TEST(blocks == of_held.blocks_in(0));
    for (std::uint64_t i = 0; i < blocks + 100; ++i) {  // into the second epoch
        auto const place = of_kept.position();
        of_kept.next(a);
        of_held.next(b);
        BOOST_REQUIRE((a == b));
        if (i % 500 != 3) continue;
        calm::block_reader again(kept, rule, 512);
        again.seek(place);
        again.next(c);
        BOOST_TEST((a == c));
    }
}
