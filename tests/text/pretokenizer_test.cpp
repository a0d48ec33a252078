#include "calm/text/pretokenizer.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "support/sentences.hpp"

namespace {

using strings = std::vector<std::string>;

strings cut(calm::pretokenizer const& pattern, std::string_view text) {
    strings pieces;
    pattern.cut(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_given_pattern_cuts_and_what_it_skips_is_a_piece) {
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
    // As cl100k writes it: possessive.
    BOOST_TEST(cut(calm::pretokenizer(R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}|\s+)"), "go 12345") ==
               (strings{"go", " ", "123", "45"}));
}

BOOST_AUTO_TEST_CASE(gpt2s_pattern) {
    BOOST_TEST(cut(calm::pretokenizer(calm::gpt2_pattern), "I'll go 12345 times!!  Now\n\n x'S") ==
               (strings{"I", "'ll", " go", " 12345", " times", "!!", " ", " Now", "\n\n", " x", "'", "S"}));
}

BOOST_AUTO_TEST_CASE(what_may_mean_something_else_is_refused) {
    for (std::string const pattern :
         {"^a",        "a$",      "a.b",    R"(\w+)",  R"(\h)",   R"(\b)",       R"(a\1)", R"(\x41)",
          R"(\u0041)", R"(\K)",   R"(\Qa)", R"([\S])", "[a[b]]",  "[[:alpha:]]", "[a&&b]", "[]a]",
          "[^]a]",     "a{1,2}+", "(?R)",   "(?>a)",   "(?<n>a)", "(?#a)",       "(?m:a)", "(?<=a)b",
          "(*UTF)a",   R"(\é)",   "a\\",    "(a",      "a)",      "[a",          "*a",     R"(\p{Nope})",
          R"(\p{L)",   "a*",      "a|",     "",        "\xff",    "(a?){9}"})
        BOOST_CHECK_MESSAGE(
            !calm::test::sentence_of<calm::error>([&] { calm::pretokenizer const none(pattern); }).empty(), pattern);
    BOOST_CHECK_THROW(calm::pretokenizer(std::string(5000, 'a')), calm::error);
    // Nested counts grow fast: PCRE2 refuses, or the pattern is small enough.
    BOOST_CHECK_THROW(calm::pretokenizer("((((((a{1000}){1000}){1000}){1000}){1000}){1000})"), calm::error);
}

// A pattern that is not ours may try very many ways: that ends with a sentence.
BOOST_AUTO_TEST_CASE(a_matcher_without_end_is_stopped) {
    calm::pretokenizer const slow("(?:a+)+[bc]");
    BOOST_CHECK_THROW(cut(slow, std::string(60, 'a')), calm::error);
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
