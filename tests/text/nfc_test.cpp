#include "calm/text/detail/nfc.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>

#include "support/sentences.hpp"

namespace {

std::string normalized(std::string_view text, std::size_t part) {
    calm::detail::nfc_stream stream;
    std::string out;
    auto const add = [&](std::string_view more) { out += more; };
    for (; !text.empty(); text.remove_prefix(std::min(part, text.size()))) stream.push(text.substr(0, part), add);
    stream.finish(add);
    return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(characters_compose_across_parts) {
    if (!calm::detail::has_nfc) {
        BOOST_TEST(
            calm::test::has(calm::test::sentence_of<calm::error>([] { (void)normalized("a", 1); }), "libicu-dev"));
        return;
    }
    for (std::size_t const part : {1u, 2u, 3u, 100u}) {
        BOOST_TEST(normalized("plain text", part) == "plain text");
        BOOST_TEST(normalized("e\u0301te\u0301", part) == "\u00e9t\u00e9");
        BOOST_TEST(normalized("a\u0323\u0302", part) == "\u1ead");             // two marks
        BOOST_TEST(normalized("a\u0302\u0323", part) == "\u1ead");             // in the other order
        BOOST_TEST(normalized("\u1112\u1161\u11ab", part) == "\ud55c");        // Hangul
        BOOST_TEST(normalized("\u2126>\u0338", part) == "\u03a9\u226f");       // a singleton; a sign composes too
        BOOST_TEST(normalized("e\xff\u0301\xc3", part) == "e\xff\u0301\xc3");  // invalid bytes stay and separate
        BOOST_TEST(normalized("", part).empty());
    }
}

// ICU counts bytes in 31 bits, so it gets a long text in portions, which end between characters that do not compose.
BOOST_AUTO_TEST_CASE(a_long_text_is_normalized_in_portions) {
    if (!calm::detail::has_nfc) return;
    std::string const composed = "\u00e9\u1ead", apart = "e\u0301a\u0323\u0302";
    for (std::size_t const before : {0u, 1u, 2u}) {
        std::string text(before, 'x'), expected(before, 'x');
        while (text.size() < std::size_t{17} << 20) text += apart, expected += composed;
        BOOST_TEST((normalized(text, text.size()) == expected));
    }
    std::string marks = "e";
    while (marks.size() < std::size_t{17} << 20) marks += "\u0301";
    BOOST_CHECK_THROW((void)normalized(marks + "e", marks.size() + 1), calm::error);
}

BOOST_AUTO_TEST_CASE(marks_without_end_are_refused) {
    if (!calm::detail::has_nfc) return;
    std::string marks;
    while (marks.size() < std::size_t{1} << 20) marks += "\u0301";
    calm::detail::nfc_stream stream;
    auto const none = [](std::string_view) {};
    BOOST_CHECK_THROW(for (std::size_t bytes = 0; bytes <= calm::detail::longest_piece; bytes += marks.size())
                          stream.push(marks, none),
                      calm::error);
}
