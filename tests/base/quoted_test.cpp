#include "calm/base/quoted.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using calm::in_quotes;

BOOST_AUTO_TEST_CASE(quoted_file_text_is_shortened) {
    std::string const whole(100, 'x');
    BOOST_TEST(in_quotes("") == "''");
    BOOST_TEST(in_quotes(whole) == "'" + whole + "'");
    BOOST_TEST(in_quotes(whole + "y", '"') == "\"" + whole + "...\"");
}

BOOST_AUTO_TEST_CASE(quoted_text_cannot_control_a_terminal) {
    BOOST_TEST(in_quotes("a\nb\x1b[2J\x7f\t\r") == R"('a\nb\x1b[2J\x7f\t\r')");
    BOOST_TEST(in_quotes(std::string("\0", 1)) == R"('\x00')");
    BOOST_TEST(in_quotes("\xc2\x9b"
                         "2J \xc2\xa0") == "'\\u009b2J \xc2\xa0'");
    // Direction marks U+061C, U+200E to F, U+202A to E, U+2066 to 9; separators U+2028 to 9. Neighbours are not
    // escaped.
    for (int last = 0x80; last < 0xc0; ++last) {
        auto const shown = [&](std::string const& lead) {
            return in_quotes(lead + static_cast<char>(last)).size() > 5;
        };
        BOOST_TEST(shown("\xd8") == (last == 0x9c));
        BOOST_TEST(shown("\xe2\x80") == (last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae)));
        BOOST_TEST(shown("\xe2\x81") == (last >= 0xa6 && last <= 0xa9));
    }
    BOOST_TEST(in_quotes("\xe2\x80\xae") == R"('\u202e')");
    BOOST_TEST(in_quotes("\xe2\x80\xa8 \xd8\x9c") == R"('\u2028 \u061c')");
    BOOST_TEST(calm::escaped("a\tb\n\x1b", "\n\t") == "a\tb\n\\x1b");
}

BOOST_AUTO_TEST_CASE(a_line_stays_one_and_its_ends_are_seen) {
    std::string const path = "/a/" + std::string(2 * calm::longest_line, 'x') + "\n/z: expected a file";
    auto const line = calm::printable_line(path);
    BOOST_TEST(line.size() < calm::longest_line + 30);
    BOOST_TEST(line.starts_with("/a/xxx"));
    BOOST_TEST(line.ends_with("xxx\\n/z: expected a file"));
    BOOST_TEST(line.find("x[... 4023 bytes ...]x") != std::string::npos, line);
    BOOST_TEST(calm::printable_line("it's \\x1b\\n") == "it's \\x1b\\n");  // already escaped text is unchanged
    std::string letters;
    for (int i = 0; i < 100; ++i) letters += "\xe2\x82\xac";
    for (std::size_t most = 40; most < 50; ++most) {
        auto const cut = calm::printable_line(letters, most);
        BOOST_TEST(cut.find('\\') == std::string::npos, cut);  // no character is split
        BOOST_TEST(calm::valid_prefix(cut) == cut.size());
    }
}

BOOST_AUTO_TEST_CASE(a_message_is_utf8_whatever_the_file_contains) {
    std::string const e = "\xc3\xa9";
    BOOST_TEST(in_quotes(e) == "'" + e + "'");
    BOOST_TEST(in_quotes("a\xff" + e + "\xc3") == "'a\\xff" + e + "\\xc3'");  // the last character is incomplete
    std::string const cut = std::string(99, 'x');                             // here shortening would cut a character
    BOOST_TEST(in_quotes(cut + e + e) == "'" + cut + "...'");
    for (int first = 0; first < 256; ++first)
        for (int second = 0; second < 256; ++second) {
            std::string const bytes{static_cast<char>(first), static_cast<char>(second)};
            auto const shown = in_quotes(bytes);
            BOOST_REQUIRE(calm::valid_prefix(shown) == shown.size());
        }
}
