#include "calm/text/build_corpus.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "calm/text/block_reader.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "calm/text/packed_blocks.hpp"
#include "compressed.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"
#include "tokenizer_files.hpp"

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

// Stores the selected documents at a path.
calm::corpus stored(std::string const& path, strings const& specs, calm::tokenizer const& words,
                    calm::document_selection const& selection = {}) {
    return calm::store_corpus(path, calm::digest_of(specs, words, selection), specs, words, selection);
}

std::string lines(std::size_t n, std::string const& word = "story") {
    std::string all;
    for (std::size_t i = 0; i < n; ++i) all += "{\"text\": \"" + word + " " + std::to_string(i) + "\"}\n";
    return all;
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
    auto const path = folder.path("text.tokens");
    auto const digest = calm::digest_of(specs, words, {});
    std::size_t tokens = 0;

    auto const [peak, made] =
        peak_of([&] { return calm::store_corpus(path, digest, specs, words, {}).tokens() > megabytes << 16; });
    BOOST_TEST(made);
    auto const [peak_of_epoch, read] = peak_of([&] {
        calm::token_file::reason why;
        auto const text = calm::stored_corpus(path, digest, words, why).value();
        calm::block_reader blocks(text, rule, block_tokens);
        std::vector<calm::token_id> block(block_tokens);
        for (auto left = blocks.blocks_in(0); left > 0; --left) {
            blocks.next(block);
            tokens += block.size();
        }
        return blocks.position().epoch == 0 && tokens > text.tokens();
    });
    BOOST_TEST(read);
    write_stories(specs[0], megabytes << 18);  // smaller, to be read faster; its ids still exceed the limit
    auto const [peak_of_blocks, visited] = peak_of([&] {
        auto const ids = std::make_shared<calm::document_ids>(specs, words, calm::document_selection{});
        std::size_t blocks = 0;
        calm::blocks_of(ids, rule, block_tokens)([&](std::span<calm::token_id const>) { ++blocks; });
        return blocks * block_tokens > megabytes << 14;
    });
    BOOST_TEST(visited);
    auto const [peak_of_size, counted] = peak_of([&] {
        calm::document_ids text(specs, words, {});
        return size_of(text, rule, block_tokens).tokens > megabytes << 14;
    });
    BOOST_TEST(counted);
    BOOST_TEST_MESSAGE("MiB to make " << peak << ", to read an epoch " << peak_of_epoch << ", blocks " << peak_of_blocks
                                      << ", to count " << peak_of_size);
    if (is_sanitized) return;
    BOOST_TEST(peak < 150);
    BOOST_TEST(peak_of_epoch < 150);
    BOOST_TEST(peak_of_blocks < 50);
    BOOST_TEST(peak_of_size < 50);
}

// One document, of text or a single line of JSON, has more bytes than are tokenised at a time, and one has none.
BOOST_AUTO_TEST_CASE(visited_documents_match_the_corpus) {
    calm::test::temporary_folder const folder;
    std::string const words_of_text = "many words and more of them ";
    std::string text;
    while (text.size() < 2'500'000) text += words_of_text;
    strings const specs{folder.with("long.txt", text), folder.path("a.jsonl"),
                        folder.with("b.jsonl", "{\"text\": \"" + text + "\"}\n{\"text\": \"\"}\n"), "stories:2000"};
    write_stories(specs[1], 1);
    calm::tokenizer const words;
    for (auto const use : {calm::split::train, calm::split::heldout}) {
        calm::document_selection const selection{.use = use, .held = calm::holdout::parse("3:0")};
        auto const held = calm::build_corpus(specs, words, selection);
        calm::document_ids documents(specs, words, selection);
        for (int visit = 0; visit < 2; ++visit) {
            std::size_t document = 0;
            std::size_t done = 0;
            bool same = true;
            documents.visit([&](calm::document_portion const& portion) {
                auto const ids = held.document(document);
                same = same && portion.first == done && portion.end() <= ids.size() &&
                       std::equal(portion.ids.begin(), portion.ids.end(), ids.begin() + static_cast<long>(done));
                same = same && (!portion.is_last || portion.end() == ids.size());
                done = portion.is_last ? 0 : portion.end();
                document += portion.is_last;
            });
            BOOST_TEST(same);
            BOOST_TEST(document == held.documents());
        }
        calm::packing_rule const rule{.K = 4, .seed = 5};
        auto const size = size_of(documents, rule, 64);
        BOOST_TEST(size.documents == held.documents());
        BOOST_TEST(size.tokens == held.tokens());
        std::vector<calm::token_id> blocks;
        auto const shared = std::make_shared<calm::document_ids>(specs, words, selection);
        calm::blocks_of(shared, rule, 64)(
            [&](std::span<calm::token_id const> block) { blocks.insert(blocks.end(), block.begin(), block.end()); });
        BOOST_TEST((blocks == calm::evaluation_blocks(held, rule, 64)));
    }
    calm::document_ids little(strings{"stories:10"}, words, {});
    BOOST_CHECK_THROW(static_cast<void>(size_of(little, {.K = 4}, 1 << 20)), calm::error);
}

BOOST_AUTO_TEST_CASE(a_stored_corpus_is_the_corpus_for_every_selection) {
    calm::test::temporary_folder const folder;
    std::string over_long = "w";
    for (int i = 0; i < 20'500; ++i) over_long += " w" + std::to_string(i % 10);
    strings const specs{folder.with("a.jsonl", lines(3) + "{\"text\": \"" + over_long + "\"}\n" + lines(4)),
                        "stories:500",
                        folder.with("b.txt", over_long),
                        folder.with("c.jsonl.gz", calm::test::gzip(lines(20))),
                        folder.path("a.jsonl"),
                        folder.with("d.jsonl", lines(2, ""))};
    calm::tokenizer const words;
    for (auto const use : {calm::split::train, calm::split::heldout})
        for (auto const* const held : {"", "6:5", "2:1", "29:3"}) {
            calm::document_selection selection{.use = use};
            if (*held != '\0') selection.held = calm::holdout::parse(held);
            auto const plain = calm::build_corpus(specs, words, selection);
            auto const kept = stored(folder.path("text.tokens"), specs, words, selection);
            BOOST_TEST(kept.documents() == plain.documents());
            BOOST_TEST(kept.tokens() == plain.tokens());
            for (std::size_t i = 0; i < plain.documents(); ++i) {
                auto const a = kept.document(i), b = plain.document(i);
                BOOST_TEST(std::equal(a.begin(), a.end(), b.begin(), b.end()), held << " " << i);
                BOOST_TEST(kept.size(i) == b.size());
            }
        }
}

BOOST_AUTO_TEST_CASE(a_digest_changes_with_all_that_determines_ids) {
    calm::test::temporary_folder const folder;
    for (auto const* const name : {"x", "y"}) std::filesystem::create_directory(folder.path(name));
    auto const text = lines(5), edited = lines(5, "stary");  // of the same size
    strings const specs{folder.with("x/a.jsonl", text), folder.with("x/b.jsonl", lines(3)), "stories:100"};
    calm::tokenizer const words;
    calm::document_selection const plain;
    auto const digest = calm::digest_of(specs, words, plain);
    BOOST_TEST(digest.size() == 64U);
    strings const moved{folder.with("y/a.jsonl", text), specs[1], specs[2]};
    BOOST_TEST(calm::digest_of(moved, words, plain) == digest);
    calm::skipped_documents skipped;
    strings all{digest,
                calm::digest_of(specs, calm::tokenizer::train(strings{text}, 265), plain),
                calm::digest_of(specs, words, {.use = calm::split::heldout}),
                calm::digest_of(specs, words, {.held = calm::holdout::parse("3:0")}),
                calm::digest_of(specs, words, {.held = calm::holdout::parse("3:1")}),
                calm::digest_of(specs, words, {.data_seed = 2}),
                calm::digest_of(specs, words, {.skip = &skipped}),
                calm::digest_of(specs, words, {.limits = {.line = 500}}),
                calm::digest_of(strings{specs[1], specs[0], specs[2]}, words, plain),
                calm::digest_of(strings{specs[0], specs[1], "stories:101"}, words, plain),
                calm::digest_of(strings{specs[0], folder.with("x/b.txt", lines(3)), specs[2]}, words, plain)};
    (void)folder.with("x/a.jsonl", edited);
    all.push_back(calm::digest_of(specs, words, plain));
    (void)folder.with("x/a.jsonl", text + text);
    all.push_back(calm::digest_of(specs, words, plain));
    std::sort(all.begin(), all.end());
    BOOST_TEST((std::unique(all.begin(), all.end()) == all.end()));
    (void)folder.with("x/a.jsonl", text);
    BOOST_TEST(calm::digest_of(specs, words, plain) == digest);
    BOOST_TEST(calm::test::has(calm::test::sentence_of<calm::error>(
                                   [&] { (void)calm::digest_of(strings{folder.path("none.txt")}, words, plain); }),
                               "none.txt"));
}

BOOST_AUTO_TEST_CASE(a_stored_corpus_of_another_text_or_tokenizer_is_not_used) {
    calm::test::temporary_folder const folder;
    strings const specs{folder.with("a.jsonl", lines(5))};
    auto const path = folder.path("text.tokens");
    calm::tokenizer const words;
    auto const learned = calm::tokenizer::train(strings{lines(50)}, 265);
    auto const why = [&](calm::tokenizer const& with) {
        calm::token_file::reason reason;
        bool const found = calm::stored_corpus(path, calm::digest_of(specs, with, {}), with, reason).has_value();
        BOOST_TEST(found == reason.empty());
        return reason;
    };
    using calm::test::has;
    BOOST_TEST(has(why(words), "cannot be opened"));
    (void)stored(path, specs, words);
    BOOST_TEST(why(words) == "");
    BOOST_TEST(has(why(learned), "it belongs to another text or tokenizer"));
    (void)folder.with("a.jsonl", lines(6));
    BOOST_TEST(has(why(words), "it belongs to another text or tokenizer"));
    (void)stored(path, specs, words);
    BOOST_TEST(why(words) == "");
    std::filesystem::resize_file(path, 100);
    BOOST_TEST(has(why(words), "it ends early"));
}

// Text that fails leaves the file of before.
BOOST_AUTO_TEST_CASE(a_text_that_cannot_be_read_is_not_stored) {
    calm::test::temporary_folder const folder;
    strings const good{folder.with("a.jsonl", lines(3))}, bad{folder.with("b.jsonl", lines(3) + "bad\n")};
    auto const path = folder.path("text.tokens");
    calm::tokenizer const words;
    (void)stored(path, good, words);
    auto const before = folder.content("text.tokens");
    BOOST_TEST(calm::test::has(calm::test::sentence_of<calm::error>([&] { (void)stored(path, bad, words); }),
                               "b.jsonl, line 4: invalid JSON"));
    BOOST_TEST(folder.content("text.tokens") == before);
    BOOST_TEST(!std::filesystem::exists(path + ".partial"));
    calm::skipped_documents skipped;
    for (std::uint64_t const time : {1U, 2U}) {
        auto const text = stored(path, bad, words, {.skip = &skipped});
        BOOST_TEST(text.documents() == 3U);
        BOOST_TEST(text.skipped() == 1U);
        BOOST_TEST(skipped.count == time);
    }
    BOOST_TEST(stored(path, good, words).skipped() == 0U);
}

// ICU's version of Unicode decides what composes, PCRE2's what matches.
BOOST_AUTO_TEST_CASE(the_unicode_of_the_normalizer_counts_where_it_is_used) {
    if (!calm::detail::has_nfc) return;
    calm::tokenizer const plain;
    auto file = calm::test::json_of(calm::bpe_trainer().train(0));
    file.normalizer = R"({"type":"NFC"})";
    auto const normalizing = calm::parse_tokenizer(file.text(), "tokenizer.json");
    BOOST_TEST(calm::detail::unicode_versions(plain) == calm::unicode_version());
    BOOST_TEST(calm::detail::unicode_versions(normalizing) ==
               calm::unicode_version() + " NFC " + calm::detail::nfc_unicode_version());
    BOOST_TEST(calm::detail::nfc_unicode_version().find('.') != std::string::npos);
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

BOOST_AUTO_TEST_CASE(blocks_of_a_stored_corpus_match_one_in_memory) {
    calm::test::temporary_folder const folder;
    strings const specs{folder.path("a.jsonl")};
    write_stories(specs[0], 1);
    calm::tokenizer const words;
    auto const kept = stored(folder.path("text.tokens"), specs, words);
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
