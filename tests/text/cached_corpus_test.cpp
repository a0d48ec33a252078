#include "calm/text/cached_corpus.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>

#include "calm/text/block_reader.hpp"
#include "support/temporary_folder.hpp"

namespace {

using strings = std::vector<std::string>;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool is_sanitized = true;  // which is slow, and takes memory of its own
#else
constexpr bool is_sanitized = false;
#endif

// Peak of memory in MiB of a process that makes the call, and whether it returned true.
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

// JSON lines of stories, of at least `size` bytes; the stories repeat.
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
    BOOST_TEST_MESSAGE("MiB to make " << peak << ", to read an epoch " << peak_of_epoch);
    if (is_sanitized) return;
    BOOST_TEST(peak < 150);
    BOOST_TEST(peak_of_epoch < 150);
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
