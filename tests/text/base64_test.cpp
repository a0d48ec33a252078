#include "calm/text/detail/base64.hpp"

#include <boost/test/unit_test.hpp>

#include "calm/base/random.hpp"

BOOST_AUTO_TEST_CASE(known_words) {
    for (auto const& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                      {"f", "Zg=="},
                                      {"fo", "Zm8="},
                                      {"foo", "Zm9v"},
                                      {"foob", "Zm9vYg=="},
                                      {"fooba", "Zm9vYmE="},
                                      {"foobar", "Zm9vYmFy"}}) {
        BOOST_TEST(calm::base64_encode(bytes) == text);
        BOOST_TEST(calm::base64_decode(text).value() == bytes);
    }
}

BOOST_AUTO_TEST_CASE(any_bytes_survive) {
    calm::random_sequence random({.seed = 4});
    for (int round = 0; round < 300; ++round) {
        std::string bytes;
        for (std::uint32_t i = random.below(30); i > 0; --i) bytes += static_cast<char>(random.below(256));
        BOOST_TEST(calm::base64_decode(calm::base64_encode(bytes)).value() == bytes);
    }
}

BOOST_AUTO_TEST_CASE(text_that_does_not_round_trip_is_refused) {
    for (std::string const text :
         {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg===", "====", "=Zg=", "Z=g=", "Zg==Zg==", "Zm 9", "Zm-9"})
        BOOST_TEST(!calm::base64_decode(text).has_value(), text);
}
