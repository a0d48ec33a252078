#include "calm/text/detail/piece_cutter.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using strings = std::vector<std::string>;
using patterns = std::vector<std::shared_ptr<calm::pretokenizer const>>;

patterns compiled(std::vector<std::string_view> const& all) {
    patterns made;
    for (auto const one : all) made.push_back(std::make_shared<calm::pretokenizer const>(one));
    return made;
}

strings cut(patterns const& all, std::string_view text, std::size_t part) {
    calm::detail::piece_cutter cutter(all);
    strings pieces;
    auto const keep = [&](std::string_view piece) { pieces.emplace_back(piece); };
    for (; !text.empty(); text.remove_prefix(std::min(part, text.size()))) cutter.push(text.substr(0, part), keep);
    cutter.finish(keep);
    return pieces;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_pattern_cuts_the_pieces_of_the_one_before) {
    auto const digits = compiled({calm::digit_pattern, calm::gpt2_pattern});
    auto const numbers = compiled({calm::number_pattern, calm::gpt2_pattern});
    auto const three = compiled({"a+", "[ab]{2}", "b"});
    for (std::size_t const part : {1u, 2u, 3u, 100u}) {
        BOOST_TEST(cut(digits, "go 123 times", part) == (strings{"go", " ", "1", "2", "3", " times"}));
        BOOST_TEST(cut(numbers, "go 123 times", part) == (strings{"go", " ", "123", " times"}));
        BOOST_TEST(cut(digits, "é\xff٣\xc3", part) == (strings{"é", "\xff", "٣", "\xc3"}));
        BOOST_TEST(cut(three, "xaaabbbx", part) == (strings{"x", "aa", "a", "b", "b", "b", "x"}));
        BOOST_TEST(cut(three, "", part).empty());
    }
}

// A text without a digit is one piece of the first pattern, longer than any piece may be.
BOOST_AUTO_TEST_CASE(text_without_a_match_is_not_held) {
    auto const digits = compiled({calm::digit_pattern, calm::gpt2_pattern});
    calm::detail::piece_cutter cutter(digits);
    std::string words;
    while (words.size() < std::size_t{1} << 16) words += " word";
    std::size_t pieces = 0;
    auto const count = [&](std::string_view) { ++pieces; };
    for (std::size_t bytes = 0; bytes <= calm::detail::longest_piece; bytes += words.size()) cutter.push(words, count);
    BOOST_TEST(pieces > calm::detail::longest_piece / 5 - 10);
    cutter.finish(count);
    BOOST_TEST(pieces % (words.size() / 5) == 0);
}

BOOST_AUTO_TEST_CASE(an_ended_piece_is_apart_from_what_follows) {
    auto const all = compiled({calm::digit_pattern, calm::gpt2_pattern});
    calm::detail::piece_cutter cutter(all);
    strings pieces;
    auto const keep = [&](std::string_view piece) { pieces.emplace_back(piece); };
    cutter.push("ab", keep);
    cutter.end(keep);
    cutter.push("cd", keep);
    cutter.finish(keep);
    BOOST_TEST(pieces == (strings{"ab", "cd"}));
}
