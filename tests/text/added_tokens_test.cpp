#include "calm/text/detail/added_tokens.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>

namespace {

// The text with tokens as [id].
std::string found(calm::added_tokens const& tokens, std::string_view text, std::size_t part) {
    calm::added_token_stream stream(tokens);
    std::string out;
    auto const keep = [&](std::string_view more) { out += more; };
    auto const token = [&](calm::token_id id) { out += "[" + std::to_string(id) + "]"; };
    for (; !text.empty(); text.remove_prefix(std::min(part, text.size())))
        stream.push(text.substr(0, part), text.size() <= part, keep, token);
    return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_leftmost_longest_token_matches) {
    calm::added_tokens tokens;
    tokens.add("<a>", 1);
    tokens.add("<a", 2);
    tokens.add("a><b", 3);
    tokens.add("<|end|>", -1);
    tokens.add("end", 4);
    for (std::size_t const part : {1u, 2u, 3u, 100u}) {
        BOOST_TEST(found(tokens, "x<a>y<ab<", part) == "x[1]y[2]b<");
        BOOST_TEST(found(tokens, "<a><b", part) == "[1]<b");
        BOOST_TEST(found(tokens, "a><b", part) == "[3]");
        BOOST_TEST(found(tokens, "end<|end|>end<|end", part) == "[4]<|end|>[4]<|[4]");  // a special token hides one
        BOOST_TEST(found(tokens, "", part).empty());
    }
}
