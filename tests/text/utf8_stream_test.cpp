#include "calm/text/detail/utf8_stream.hpp"

#include <boost/test/unit_test.hpp>

#include "calm/base/random.hpp"

BOOST_AUTO_TEST_CASE(split_at_every_byte_no_character_is_cut) {
    std::string const text = "aé中😀z\U0010FFFF\u0800\ud7ff";
    for (std::size_t first = 0; first <= text.size(); ++first)
        for (std::size_t second = first; second <= text.size(); ++second) {
            calm::utf8_stream stream;
            std::string out;
            for (auto const& part : {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
                std::string const now = stream.push(part);
                BOOST_TEST(calm::valid_prefix(now) == now.size());
                out += now;
            }
            BOOST_TEST(out == text);
            BOOST_TEST(stream.flush().empty());
        }
}

BOOST_AUTO_TEST_CASE(a_character_comes_with_its_last_byte) {
    calm::utf8_stream stream;
    BOOST_TEST(stream.push("\xf0").empty());
    BOOST_TEST(stream.push("\x9f\x98").empty());
    BOOST_TEST(stream.push("\x80!") == "😀!");
    BOOST_TEST(stream.push("\xe4\xb8").empty());
    BOOST_TEST(stream.flush() == "\xe4\xb8");
    BOOST_TEST(stream.flush().empty());
    BOOST_TEST(stream.push("\xb8x") == "\xb8x");
}

BOOST_AUTO_TEST_CASE(invalid_bytes_pass_at_once) {
    calm::utf8_stream stream;
    for (std::string const bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe0\x80"})
        BOOST_TEST(stream.push(bytes) == bytes);
    BOOST_TEST(stream.push("\xe4\xb8") == "");
    BOOST_TEST(stream.push("a") == "\xe4\xb8"
                                   "a");
}

BOOST_AUTO_TEST_CASE(whatever_goes_in_comes_out) {
    calm::random_sequence random({.seed = 9});
    for (int round = 0; round < 500; ++round) {
        calm::utf8_stream stream;
        std::string in;
        std::string out;
        for (std::uint32_t i = random.below(20); i > 0; --i) {
            std::string part;
            for (std::uint32_t j = random.below(4); j > 0; --j) part += static_cast<char>(random.below(256));
            in += part;
            out += stream.push(part);
            BOOST_TEST(in.size() - out.size() <= 3);
        }
        BOOST_TEST(out + stream.flush() == in);
    }
}
