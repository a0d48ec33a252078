#include "calm/sample/temperature.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>

#include "support/sentences.hpp"

using calm::test::has;
using calm::test::usage_sentence;

BOOST_AUTO_TEST_CASE(temperatures_are_decimals_or_one_over_n) {
    auto const half = calm::parse_temperature("0.5");
    BOOST_TEST(half.n == 2);
    BOOST_TEST(half.inverse == 2.0);
    for (int n = 1; n <= 1000; ++n) {
        auto const exact = calm::parse_temperature("1/" + std::to_string(n));
        BOOST_TEST(exact.n == n);
        BOOST_TEST(exact.inverse == n);
        BOOST_TEST(exact.value == 1.0 / n);
        BOOST_TEST(calm::temperature::of(1.0 / n).n == n);
    }
    BOOST_TEST(calm::parse_temperature("1").n == 1);
    BOOST_TEST(calm::parse_temperature("1e-1").n == 10);
    BOOST_TEST(calm::parse_temperature("0.4").n == 0);
    BOOST_TEST(calm::parse_temperature("0.4").inverse == 2.5);
    BOOST_TEST(calm::parse_temperature("0.333333333").n == 3);  // 1/T - 3 = 3e-9
    BOOST_TEST(calm::parse_temperature("0.3333").n == 0);       // 1/T - 3 = 3e-4
    BOOST_TEST(calm::parse_temperature("0.49999978").n == 2);   // 8.8e-7 away
    BOOST_TEST(calm::parse_temperature("0.49999974").n == 0);   // 1.04e-6 away
    BOOST_TEST(calm::parse_temperature("1.5").n == 0);
    BOOST_TEST(calm::parse_temperature("1e9").n == 0);
    BOOST_TEST(calm::parse_temperature("0").n == 0);
    BOOST_TEST(std::isinf(calm::parse_temperature("0").inverse));
    BOOST_TEST(std::isfinite(calm::parse_temperature("1e-300").inverse));
}

BOOST_AUTO_TEST_CASE(an_invalid_temperature_is_an_error) {
    for (char const* const text : {"", "half", "1/", "1/0", "1/-2", "1/2.5", "0.5x", "1/2x", " 0.5", "+0.5", "/2",
                                   "1//2", "1/99999999999999999999", "0x1", "1e999"})
        BOOST_TEST(
            has(usage_sentence([&] { (void)calm::parse_temperature(text); }), "expected a decimal of at least 0"),
            text);
    BOOST_TEST(
        has(usage_sentence([] { (void)calm::parse_temperature("2/3"); }), "numerator is not 1; write it as a decimal"));
    BOOST_TEST(has(usage_sentence([] { (void)calm::parse_temperature("-1"); }), "negative or not finite"));
    BOOST_TEST(has(usage_sentence([] { (void)calm::parse_temperature("nan"); }), "negative or not finite"));
    BOOST_TEST(has(usage_sentence([] { (void)calm::parse_temperature("inf"); }), "negative or not finite"));
    BOOST_TEST(has(usage_sentence([] { (void)calm::temperature::of(-0.5); }), "at least 0, or 1/n, found -0.5"));
}

BOOST_AUTO_TEST_CASE(only_one_over_n_has_an_integer_inverse_and_others_name_the_two_nearest) {
    auto const refusal = [](double T) {
        return usage_sentence([&] { (void)calm::integer_inverse(calm::temperature::of(T)); });
    };
    BOOST_TEST(
        has(refusal(0.4), "needs T = 1/n with an integer n, found T = 0.4; take 1/2 (0.5) or 1/3 (0.333333), or"));
    BOOST_TEST(has(refusal(0.7), "take 1/1 (1) or 1/2 (0.5), or another sampler: noise"));
    BOOST_TEST(has(refusal(1.5), "take 1/1 (1) or 1/2 (0.5)"));
    BOOST_TEST(has(refusal(1e-300), "found T = 1e-300; take a larger one"));
    BOOST_TEST(!has(refusal(1.5), "exact"));
    BOOST_TEST(has(refusal(0.0), "found T = 0"));
    BOOST_TEST(refusal(1.0).empty());
    BOOST_TEST(calm::integer_inverse(calm::temperature::of(0.25)) == 4);
}
