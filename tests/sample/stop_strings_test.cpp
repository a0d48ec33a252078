// Texts end before a stop string, however they arrive.

#include "calm/sample/stop_strings.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "calm/text/tokenizer.hpp"

using namespace calm;

namespace {

struct ended {
    std::string text, stop;
    bool operator==(ended const&) const = default;
};
std::ostream& operator<<(std::ostream& out, ended const& one) {
    return out << "'" << one.text << "' ended by '" << one.stop << "'";
}

// The text up to the first byte with which it contains one of the strings: every prefix is searched.
ended expected(std::vector<std::string> const& strings, std::string const& text) {
    for (std::size_t size = 1; size <= text.size(); ++size) {
        std::string_view const so_far(text.data(), size);
        std::string longest;
        for (auto const& one : strings)
            if (so_far.ends_with(one) && one.size() > longest.size()) longest = one;
        if (!longest.empty()) return {text.substr(0, size - longest.size()), longest};
    }
    return {text, ""};
}

// The text in pieces of `size` bytes. What push() returns must be a beginning of the end result at any time.
ended in_pieces(std::vector<std::string> const& strings, std::string const& text, std::size_t size) {
    stop_strings const stops(strings);
    stopped_text one(stops);
    auto const all = expected(strings, text).text;
    std::string shown;
    for (std::size_t at = 0; at < text.size(); at += size) {
        shown += one.push(std::string_view(text).substr(at, size));
        BOOST_TEST(all.starts_with(shown), "'" << shown << "' was shown of '" << all << "'");
    }
    shown += one.flush();
    return {shown, one.stop() != nullptr ? *one.stop() : ""};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_ends_before_a_stop_string_wherever_it_is_split) {
    struct example {
        std::vector<std::string> strings;
        std::string text;
        ended result;
    };
    std::vector<example> const examples{
        {{}, "any text", {"any text", ""}},
        {{"."}, "One. Two.", {"One", "."}},
        {{"\n\n"}, "a\nb\n\nc", {"a\nb", "\n\n"}},
        {{"aab"}, "aaab", {"a", "aab"}},
        {{"abab"}, "aabababab", {"a", "abab"}},
        {{"abcabd"}, "abcabcabd", {"abc", "abcabd"}},
        {{"never"}, "nevnever", {"nev", "never"}},
        {{"never"}, "ends with neve", {"ends with neve", ""}},  // the beginning that was held back
        {{"User:", "\n"}, "Hi\nUser: ho", {"Hi", "\n"}},
        {{"abca", "bc"}, "xabca", {"xa", "bc"}},  // complete first
        {{"bc", "abc"}, "xabc", {"x", "abc"}},    // complete with the same byte: the longest
        {{"bc", "bc"}, "abc", {"a", "bc"}},       // twice
        {{"\xc3\xa9"}, "caf\xc3\xa9 x", {"caf", "\xc3\xa9"}},
        {{"\xc3\xa9"}, "\xc3\xa8\xc3\xa8", {"\xc3\xa8\xc3\xa8", ""}},  // another character with the same first byte
        {{"\xf0\x9f\x98\x80!"}, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80!", {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80!"}},
        {{"x"}, "\xff\xc3x", {"\xff\xc3", "x"}},  // bytes of a model that are not UTF-8
        {{"all of it"}, "all of it", {"", "all of it"}}};
    for (auto const& [strings, text, result] : examples) {
        BOOST_TEST(expected(strings, text) == result);
        for (std::size_t size = 1; size <= text.size(); ++size) BOOST_TEST(in_pieces(strings, text, size) == result);
    }
    // All texts of 10 bytes, and strings that overlap themselves and each other.
    std::vector<std::string> const strings{"aaba", "abab", "bbba"};
    for (unsigned bits = 0; bits < 1024; ++bits) {
        std::string text;
        for (unsigned i = 0; i < 10; ++i) text += (bits >> i & 1U) != 0 ? 'a' : 'b';
        for (std::size_t const size : {1U, 3U, 10U})
            BOOST_TEST(in_pieces(strings, text, size) == expected(strings, text));
    }
}

BOOST_AUTO_TEST_CASE(only_a_possible_beginning_is_held_back) {
    stop_strings const stops({"aab", "\n\n"});
    stopped_text text(stops);
    BOOST_TEST(text.push("one a") == "one ");
    BOOST_TEST(text.push("a") == "");
    BOOST_TEST(text.push("a") == "a");  // the first of three can no longer begin aab
    BOOST_TEST(text.push("c\n") == "aac");
    BOOST_TEST(text.push("d") == "\nd");
    BOOST_TEST(text.push("\n\nmore") == "");
    BOOST_REQUIRE(text.stop() != nullptr);
    BOOST_TEST(*text.stop() == "\n\n");
    BOOST_TEST(text.push("") == "");
    BOOST_TEST(text.push("more") == "");
    BOOST_TEST(text.flush() == "");
    BOOST_CHECK_THROW(stop_strings({"a", ""}), error);
}

// A patch of tokens may contain the end of a stop string, the rest of the patch and EOS.
BOOST_AUTO_TEST_CASE(tokens_after_a_stop_string_are_dropped) {
    tokenizer const bytes;
    auto const ids = [&](std::string const& text) { return bytes.encode(text); };
    stop_strings const stops({"<end>", "stop"});
    stop_watch watch(stops, bytes, 2);
    BOOST_TEST(watch.continues(0, ids("One <e")));
    BOOST_TEST(watch.continues(1, ids("Two st")));
    BOOST_TEST(watch.continues(0, ids("nd of")));
    BOOST_TEST(!watch.continues(1, ids("op it")));
    BOOST_TEST(!watch.continues(0, ids("<end>")));

    generation_result made{.tokens = ids("Two stop it"), .stopped_at_eos = true, .patches = 3};
    auto const shown = end_at_stop(made, bytes, stops);
    BOOST_TEST(shown.text == "Two ");
    BOOST_REQUIRE(shown.stop != nullptr);
    BOOST_TEST(*shown.stop == "stop");
    BOOST_TEST(made.tokens == ids("Two stop"), boost::test_tools::per_element());
    BOOST_TEST(!made.stopped_at_eos);
    generation_result whole{.tokens = ids("Two sto"), .stopped_at_eos = true};
    BOOST_TEST(end_at_stop(whole, bytes, stops).text == "Two sto");
    BOOST_TEST(whole.stopped_at_eos);
}
