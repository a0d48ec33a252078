#include <boost/test/unit_test.hpp>

#include "command/suggest.hpp"

using namespace calm::apps;

BOOST_AUTO_TEST_CASE(edit_distances) {
    BOOST_TEST(edit_distance("", "") == 0U);
    BOOST_TEST(edit_distance("abc", "") == 3U);
    BOOST_TEST(edit_distance("", "abc") == 3U);
    BOOST_TEST(edit_distance("kitten", "sitting") == 3U);
    BOOST_TEST(edit_distance("bacth", "batch") == 1U);  // swapped neighbours
    BOOST_TEST(edit_distance("ab", "ba") == 1U);
    BOOST_TEST(edit_distance("abc", "cba") == 2U);
    BOOST_TEST(edit_distance("tiny", "tinny") == edit_distance("tinny", "tiny"));
}

BOOST_AUTO_TEST_CASE(the_nearest_name_is_suggested) {
    BOOST_TEST(did_you_mean("--bacth", {"--block", "--batch", "--beta"}) == "; did you mean --batch?");
    BOOST_TEST(did_you_mean("x", {}) == "");
    BOOST_TEST(did_you_mean("--threads", {"--help", "--data", "--mode", "--holdout"}) == "");
    BOOST_TEST(did_you_mean("clam", {"calm", "evaluate"}) == "; did you mean calm?");
    BOOST_TEST(did_you_mean("--temp", {"--help", "--temperature"}) == "; did you mean --temperature?");
    BOOST_TEST(did_you_mean("--max", {"--max-tokens-of-all", "--max-tokens", "--mix"}) ==
               "; did you mean --max-tokens?");
    BOOST_TEST(did_you_mean("fresh", {"free"}) == "");          // 2 of 5 letters
    BOOST_TEST(did_you_mean("--sampel", {"--samples"}) != "");  // 2 of 9
    BOOST_TEST(listed({"a"}) == "a");
    BOOST_TEST(listed({"a", "b", "c"}) == "a, b and c");
}
