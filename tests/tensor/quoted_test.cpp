#include "calm/tensor/quoted.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using calm::detail::in_quotes;

BOOST_AUTO_TEST_CASE(text_of_a_file_is_shortened_in_sentences) {
    std::string const whole(100, 'x');
    BOOST_TEST(in_quotes("") == "''");
    BOOST_TEST(in_quotes(whole) == "'" + whole + "'");
    BOOST_TEST(in_quotes(whole + "y", '"') == "\"" + whole + "...\"");
}

BOOST_AUTO_TEST_CASE(no_terminal_obeys_what_a_file_says) {
    BOOST_TEST(in_quotes("a\nb\x1b[2J\x7f") == "'a?b?[2J?'");
    BOOST_TEST(in_quotes("\xc2\x9b"
                         "2J \xc2\xa0") == "'?2J \xc2\xa0'");
}

BOOST_AUTO_TEST_CASE(a_sentence_is_utf8_whatever_the_file_is) {
    std::string const e = "\xc3\xa9";
    BOOST_TEST(in_quotes(e) == "'" + e + "'");
    BOOST_TEST(in_quotes("a\xff" + e + "\xc3") == "'a?" + e + "?'");  // the last one ends inside a character
    std::string const cut = std::string(99, 'x');                     // as this is by the shortening
    BOOST_TEST(in_quotes(cut + e + e) == "'" + cut + "...'");
    for (int first = 0; first < 256; ++first)
        for (int second = 0; second < 256; ++second) {
            std::string const bytes{static_cast<char>(first), static_cast<char>(second)};
            auto const shown = in_quotes(bytes);
            BOOST_REQUIRE(calm::valid_prefix(shown) == shown.size());
        }
}
