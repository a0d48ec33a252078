#include "calm/text/detail/pretokenizer.hpp"

#include <boost/test/unit_test.hpp>

#include <ctime>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/random.hpp"
#include "support/sentences.hpp"

namespace {

using strings = std::vector<std::string>;

strings cut(calm::pretokenizer const& pattern, std::string_view text) {
    strings pieces;
    pattern.cut(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_given_pattern_splits_and_skipped_text_is_a_piece) {
    BOOST_TEST(cut(calm::pretokenizer("a+"), "xxaaayaz") == (strings{"xx", "aaa", "y", "a", "z"}));
    BOOST_TEST(cut(calm::pretokenizer("a+"), "xyz") == (strings{"xyz"}));
    BOOST_TEST(cut(calm::pretokenizer("a+"), "").empty());
    BOOST_TEST(cut(calm::pretokenizer("a+"), "xa\xff\xff"
                                             "ax") == (strings{"x", "a", "\xff\xff", "a", "x"}));
    BOOST_TEST(cut(calm::pretokenizer(R"(\S+)"), "a\u0085b\u180e c") == (strings{"a", "\u0085", "b\u180e", " ", "c"}));
    BOOST_TEST(cut(calm::pretokenizer(R"([^\s]+)"), "a\u00a0b c") == (strings{"a", "\u00a0", "b", " ", "c"}));
    BOOST_TEST(cut(calm::pretokenizer(R"(\d\d)"), "1٣45 2") == (strings{"1٣", "45", " 2"}));
    BOOST_TEST(cut(calm::pretokenizer(R"(\\s|\[s\]|\{2,3\}+)"), "\\sx[s]y") == (strings{"\\s", "x", "[s]", "y"}));
    BOOST_TEST(cut(calm::pretokenizer(R"((?i:ab)|c(?!d)|e(?=f))"), "xABcdcef") ==
               (strings{"x", "AB", "cd", "c", "e", "f"}));
    // Possessive, as in cl100k.
    BOOST_TEST(cut(calm::pretokenizer(R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}|\s+)"), "go 12345") ==
               (strings{"go", " ", "123", "45"}));
}

BOOST_AUTO_TEST_CASE(gpt2s_pattern) {
    BOOST_TEST(cut(calm::pretokenizer(calm::gpt2_pattern), "I'll go 12345 times!!  Now\n\n x'S") ==
               (strings{"I", "'ll", " go", " 12345", " times", "!!", " ", " Now", "\n\n", " x", "'", "S"}));
}

BOOST_AUTO_TEST_CASE(ambiguous_patterns_are_refused) {
    for (std::string const pattern :
         {"^a",        "a$",      "a.b",    R"(\w+)",  R"(\h)",   R"(\b)",       R"(a\1)", R"(\x41)",
          R"(\u0041)", R"(\K)",   R"(\Qa)", R"([\S])", "[a[b]]",  "[[:alpha:]]", "[a&&b]", "[]a]",
          "[^]a]",     "a{1,2}+", "(?R)",   "(?>a)",   "(?<n>a)", "(?#a)",       "(?m:a)", "(?<=a)b",
          "(*UTF)a",   R"(\é)",   "a\\",    "(a",      "a)",      "[a",          "*a",     R"(\p{Nope})",
          R"(\p{L)",   "a*",      "a|",     "",        "\xff",    "(a?){9}"})
        BOOST_CHECK_MESSAGE(
            !calm::test::sentence_of<calm::error>([&] { calm::pretokenizer const none(pattern); }).empty(), pattern);
    BOOST_CHECK_THROW(calm::pretokenizer(std::string(5000, 'a')), calm::error);
    // Nested counts grow fast: PCRE2 refuses this pattern.
    BOOST_CHECK_THROW(calm::pretokenizer("((((((a{1000}){1000}){1000}){1000}){1000}){1000})"), calm::error);
}

namespace {

// Cuts a text that arrives in parts of random size.
strings cut_in_parts(calm::pretokenizer const& pattern, std::string_view text, calm::random_sequence& random,
                     std::uint32_t most) {
    calm::piece_stream stream(pattern);
    strings pieces;
    auto const put = [&](std::string_view piece) { pieces.emplace_back(piece); };
    while (!text.empty()) {
        std::size_t const size = std::min<std::size_t>(text.size(), random.below(most + 1));
        stream.push(text.substr(0, size), put);
        text.remove_prefix(size);
    }
    stream.finish(put);
    return pieces;
}

// An equivalent pattern that is not recognised as a known one.
std::string spelled_otherwise(std::string_view pattern) {
    return "(?:" + std::string(pattern) + ")";
}
std::string const foreign = spelled_otherwise(calm::piece_pattern);

}  // namespace

BOOST_AUTO_TEST_CASE(text_in_parts_is_cut_as_the_whole) {
    calm::random_sequence random({.seed = 8});
    std::vector<std::string> const signs{"a", "B", "'s", " ",  "  ", "\n",   "\r\n",
                                         "7", "!", "é",  "中", "😀",  "\xff", "\xe4\xb8"};
    for (auto const& pattern : {std::string(calm::piece_pattern), std::string(calm::gpt2_pattern), foreign,
                                std::string(R"(\p{L}+\d|\d\d|ab(?=\s+c))")}) {
        calm::pretokenizer const ours(pattern);
        for (int round = 0; round < 300; ++round) {
            std::string text;
            for (auto i = random.below(40); i > 0; --i) {
                auto const& sign = signs[random.below(static_cast<std::uint32_t>(signs.size()))];
                for (auto j = 1 + random.below(3) * random.below(30); j > 0; --j) text += sign;
            }
            auto const whole = cut(ours, text);
            BOOST_REQUIRE(cut_in_parts(ours, text, random, 3) == whole);
            BOOST_REQUIRE(cut_in_parts(ours, text, random, 100) == whole);
            if (pattern == foreign) BOOST_REQUIRE(cut(calm::pretokenizer(), text) == whole);
        }
    }
}

// Without the matcher where ASCII alone decides. Every text of four signs, and longer random ones, must be cut alike.
BOOST_AUTO_TEST_CASE(ascii_is_cut_as_the_matcher_cuts) {
    calm::random_sequence random({.seed = 9});
    strings const signs{"a",  "S",  "l",  "e",    "r",      "'", "!",      "0",   " ",
                        "\t", "\n", "\r", "\x1f", "\u017f", "٣", "\u00a0", "\xff"};
    for (auto const pattern : {calm::piece_pattern, calm::qwen2_pattern}) {
        calm::pretokenizer const ours(pattern), matcher(spelled_otherwise(pattern));
        std::size_t const n = signs.size();
        for (std::size_t i = 0; i < n * n * n * n; ++i) {
            std::string const text = signs[i % n] + signs[i / n % n] + signs[i / n / n % n] + signs[i / n / n / n];
            auto const whole = cut(matcher, text);
            BOOST_REQUIRE_MESSAGE(cut(ours, text) == whole, text);
            if (i % 16 == 0) BOOST_REQUIRE_MESSAGE(cut_in_parts(ours, text, random, 2) == whole, text);
        }
        for (int round = 0; round < 20'000; ++round) {
            std::string text;
            for (auto i = random.below(60); i > 0; --i)
                text += random.below(40) == 0 ? signs[random.below(static_cast<std::uint32_t>(n))]
                                              : std::string(1, static_cast<char>(random.below(0x80)));
            auto const whole = cut(matcher, text);
            BOOST_REQUIRE_MESSAGE(cut(ours, text) == whole, text);
            BOOST_REQUIRE_MESSAGE(cut_in_parts(ours, text, random, 9) == whole, text);
        }
    }
}

// A user's pattern may backtrack excessively: it must fail soon, with a clear error.
BOOST_AUTO_TEST_CASE(a_matcher_without_end_is_stopped) {
    std::vector<std::pair<std::string, std::string>> const slow{
        {"(?:a+)+[bc]", std::string(60, 'a')},
        {"(?:[^0]|[^0][^0]){1,21}0|[^0]", std::string(100'000, 'a')},
        {"a*a*a*a*b|[^b]", std::string(100'000, 'a')},
        {"a*a*[bc]|a", std::string(100'000, 'a')},
        {"(?:a|b|ab)+(?:a|b|ab)+(?:a|b|ab)+c|[ab]", std::string(100'000, 'a')},
        {"(?=(?:a+)+b)a|a", std::string(60, 'a')}};
    for (auto const& [pattern, text] : slow) {
        calm::pretokenizer const attack(pattern);
        auto const start = std::clock();
        try {
            (void)cut(attack, text);
            BOOST_ERROR("no error of " << pattern);
        } catch (calm::error const& stopped) {
            BOOST_TEST((stopped.code() == calm::errc::tokenizer));
            BOOST_TEST(calm::test::has(stopped.what(), "too many ways"));
        }
        BOOST_TEST(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 30, pattern);
    }
}

BOOST_AUTO_TEST_CASE(long_runs_never_exhaust_an_honest_pattern) {
    auto const sizes_of = [](calm::pretokenizer const& pattern, std::string const& text) {
        std::vector<std::size_t> sizes;
        pattern.cut(text, [&](std::string_view piece) { sizes.push_back(piece.size()); });
        return sizes;
    };
    auto const repeated = [](std::string const& part, std::size_t size = std::size_t{1} << 20) {
        std::string text;
        while (text.size() < size) text += part;
        return text;
    };
    std::vector<calm::pretokenizer> all;
    for (auto const pattern : calm::linear_patterns) all.emplace_back(pattern);
    auto const& llama = all[0];
    auto const& gpt2 = all[1];
    calm::pretokenizer const same(foreign);
    for (auto const* const part : {" ", "a", "7", "\n", "\t", "\r\n", "!", "A", "é", "中", " \n", " a", "'", "\xff"}) {
        auto const text = repeated(part);
        for (auto const& pattern : all) {
            auto const sizes = sizes_of(pattern, text);
            BOOST_TEST(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == text.size(), part);
        }
        auto const shorter = repeated(part, 10'000);
        BOOST_TEST((sizes_of(same, shorter) == sizes_of(llama, shorter)), part);
    }
    BOOST_TEST(sizes_of(llama, repeated("a")).size() == 1U);
    BOOST_TEST(sizes_of(gpt2, repeated("7")).size() == 1U);
}

BOOST_AUTO_TEST_CASE(memory_for_a_text_is_bounded) {
    calm::pretokenizer const ours;
    calm::piece_stream stream(ours);
    std::string const part(std::size_t{1} << 17, 'x');
    auto const said = calm::test::sentence_of<calm::error>([&] {
        for (int i = 0; i < 80; ++i) stream.push(part, [](std::string_view) {});
    });
    BOOST_TEST(calm::test::has(said, "expected text with a break"), said);
}

BOOST_AUTO_TEST_CASE(long_runs_of_white_space_are_one_piece) {
    for (auto const pattern : {calm::piece_pattern, calm::gpt2_pattern}) {
        calm::pretokenizer const ours(pattern);
        for (std::size_t const size : {std::size_t{1} << 10, std::size_t{1} << 25}) {
            std::vector<std::size_t> sizes;
            ours.cut(std::string(size, ' ') + "x", [&](std::string_view piece) { sizes.push_back(piece.size()); });
            BOOST_TEST(sizes == (std::vector<std::size_t>{size - 1, 2}));
        }
    }
}
