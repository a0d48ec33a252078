#include "calm/base/error.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using calm::errc;
using calm::error;
using calm::require;
using calm::sentence;

BOOST_AUTO_TEST_CASE(a_message_is_its_parts_in_order) {
    std::string const name = "x";
    BOOST_TEST(sentence("expected ", name, " of ", 3, " rows, found ", -2L, std::string_view(" and"), "", " more") ==
               "expected x of 3 rows, found -2 and more");
    BOOST_TEST(sentence(std::string_view(), "") == "");
    BOOST_TEST(sentence(std::numeric_limits<std::uint64_t>::max(), " and ", std::numeric_limits<std::int64_t>::min()) ==
               "18446744073709551615 and -9223372036854775808");
    BOOST_TEST(sentence("a rate of ", 0.25) == "a rate of " + std::to_string(0.25));
}

BOOST_AUTO_TEST_CASE(requirements_are_checked_and_reported) {
    require(true, errc::usage, "never said");
    require(true, errc::usage, [] { return std::string("never built"); });
    require(true, errc::usage, "never ", 1);
    auto const says = [](std::string const& words) {
        return [words](error const& thrown) { return thrown.code() == errc::config && thrown.what() == words; };
    };
    BOOST_CHECK_EXCEPTION(require(false, errc::config, "words"), error, says("words"));
    BOOST_CHECK_EXCEPTION(require(false, errc::config, [] { return std::string("built"); }), error, says("built"));
    BOOST_CHECK_EXCEPTION(require(false, errc::config, "found ", 7, " of them"), error, says("found 7 of them"));
}

BOOST_AUTO_TEST_CASE(an_error_of_a_file_names_path_and_place) {
    error const thrown(errc::data, "a.jsonl", "line 3", "no valid JSON");
    BOOST_TEST(std::string(thrown.what()) == "a.jsonl, line 3: no valid JSON");
    BOOST_TEST(thrown.path() == "a.jsonl");
    BOOST_TEST(thrown.place() == "line 3");
}

BOOST_AUTO_TEST_CASE(errors_escape_control_characters) {
    std::string const path = "a\x1b[2J\nforged: all is well";
    std::vector<std::string> const more{"  - one\ntwo", "  - three"};
    error const thrown(errc::data, path, "key '\xe2\x80\xae'", "expected\r a file", more);
    BOOST_TEST(std::string(thrown.what()) ==
               "a\\x1b[2J\\nforged: all is well, key '\\u202e': expected\\r a file\n  - one\\ntwo\n  - three");
    BOOST_TEST(std::string(thrown.reason()) == "expected\\r a file\n  - one\\ntwo\n  - three");
    BOOST_TEST(thrown.path() == path);
    BOOST_TEST(std::string(error(errc::data, "of no\nfile").reason()) == "of no\\nfile");
}

BOOST_AUTO_TEST_CASE(an_error_has_a_maximal_length) {
    std::string const foreign(3'000'000, 'x');
    std::vector<std::string> const more(1000, foreign);
    error const thrown(errc::data, foreign, foreign, "found " + foreign + ": choose another", more);
    std::string const text = thrown.what();
    BOOST_TEST(text.size() < 103 * (calm::longest_line + 40));
    BOOST_TEST(text.find(": found xxx") != std::string::npos);
    BOOST_TEST(text.find("xxx: choose another\n") != std::string::npos);
    BOOST_TEST(text.ends_with("\n... and 900 lines more"));
}
