#include "calm/sample/streamed_text.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace calm;

BOOST_AUTO_TEST_CASE(streamed_text_never_splits_a_character) {
    struct vocabulary {
        [[nodiscard]] std::string_view bytes(token_id id) const {
            static constexpr std::string_view pieces[] = {"a", "\xC3", "\xA9", "b\xE2", "\x82\xAC", ""};
            return pieces[id];
        }
    } const words;
    streamed_text text(words);
    std::vector<token_id> const ids{0, 1, 2, 5, 3, 4, 1};
    std::vector<std::string> got;
    for (token_id const id : ids) got.push_back(text.push(std::span(&id, 1)));
    BOOST_TEST(got == (std::vector<std::string>{"a", "", "\xC3\xA9", "", "b", "\xE2\x82\xAC", ""}),
               boost::test_tools::per_element());
    BOOST_TEST(text.flush() == "\xC3");
    BOOST_TEST(streamed_text(words).push(ids) == "a\xC3\xA9"
                                                 "b\xE2\x82\xAC");
}
