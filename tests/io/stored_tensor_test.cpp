#include "calm/io/detail/stored_tensor.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

namespace {

// The value of 16 bits as defined by IEEE binary16.
double half(std::uint16_t bits) {
    int const exponent = (bits >> 10) & 31;
    double const fraction = bits & 1023;
    double const sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
    return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25));
}

template <class T> calm::stored_tensor stored(std::vector<T> const& values) {
    return calm::to_store("x", {static_cast<calm::index_t>(values.size())}, std::span<T const>(values));
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_table_of_types_is_in_the_order_of_the_enumeration) {
    for (std::size_t i = 0; i < calm::detail::stored_types.size(); ++i)
        BOOST_TEST(static_cast<std::size_t>(calm::detail::stored_types[i].type) == i);
    BOOST_TEST(calm::name_of(calm::stored_type::bf16) == "BF16");
    BOOST_TEST(calm::bytes_of(calm::stored_type::f64) == 8U);
    static_assert(calm::stored_type_of<std::int32_t>() == calm::stored_type::i32);
    static_assert(calm::stored_type_of<std::uint8_t>() == calm::stored_type::u8);
    static_assert(calm::stored_type_of<std::int64_t>() == calm::stored_type::i64);
    static_assert(calm::stored_type_of<std::uint16_t>() == calm::stored_type::u16);
    static_assert(calm::stored_type_of<bool>() == calm::stored_type::boolean);
}

BOOST_AUTO_TEST_CASE(every_half_matches_its_definition) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        auto const got = calm::detail::from_f16(static_cast<std::uint16_t>(bits));
        auto const want = half(static_cast<std::uint16_t>(bits));
        bool const same = std::isnan(want)
                              ? std::isnan(got)
                              : static_cast<double>(got) == want && std::signbit(got) == std::signbit(want);
        if (!same) BOOST_ERROR("bits " << bits << ": " << got << " instead of " << want);
    }
}

BOOST_AUTO_TEST_CASE(every_bf16_is_the_upper_half_of_its_float) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
        if (std::bit_cast<std::uint32_t>(calm::detail::from_bf16(static_cast<std::uint16_t>(bits))) != bits << 16)
            BOOST_ERROR("bits " << bits);
}

BOOST_AUTO_TEST_CASE(floats_and_doubles_convert) {
    std::vector<double> const values{0.1, -0.0, -std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::infinity(), std::nan("")};
    std::vector<float> narrow(5);
    calm::read_into(stored(values), std::span(narrow), "file");
    BOOST_TEST(narrow[0] == 0.1F);
    BOOST_TEST(std::signbit(narrow[1]));
    BOOST_TEST(std::isinf(narrow[2]));
    BOOST_TEST(std::isinf(narrow[3]));
    BOOST_TEST(std::isnan(narrow[4]));
    std::vector<double> wide(5);
    calm::read_into(stored(narrow), std::span(wide), "file");
    BOOST_TEST(wide[0] == static_cast<double>(0.1F));
}

BOOST_AUTO_TEST_CASE(all_integers_convert) {
    auto const same = [](auto const& values, std::vector<std::int64_t> const& want) {
        BOOST_TEST(calm::integers_of(stored(values), "file") == want, boost::test_tools::per_element());
    };
    same(std::vector<std::int8_t>{-128, 127}, {-128, 127});
    same(std::vector<std::uint8_t>{0, 255}, {0, 255});
    same(std::vector<std::int16_t>{-32768, 32767}, {-32768, 32767});
    same(std::vector<std::uint16_t>{65535}, {65535});
    same(std::vector<std::int32_t>{-2147483647, 2147483647}, {-2147483647, 2147483647});
    same(std::vector<std::uint32_t>{4294967295U}, {4294967295});
    same(std::vector<std::int64_t>{-1, 9223372036854775807}, {-1, 9223372036854775807});
    same(std::vector<std::uint64_t>{9223372036854775807U}, {9223372036854775807});
    std::vector<std::uint8_t> const truths{0, 1, 2};
    calm::stored_tensor const mask{"m", calm::stored_type::boolean, {3}, std::as_bytes(std::span(truths))};
    BOOST_TEST(calm::integers_of(mask, "file") == (std::vector<std::int64_t>{0, 1, 1}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(mismatching_sizes_are_errors) {
    auto const says = [](auto&& call, std::string const& sentence) {
        try {
            call();
            BOOST_ERROR("nothing was thrown instead of: " << sentence);
        } catch (calm::error const& thrown) {
            BOOST_TEST(thrown.what() == sentence);
            BOOST_TEST((thrown.code() == calm::errc::model_file));
        }
    };
    std::vector<float> const three{1, 2, 3};
    std::vector<float> two(2);
    says([&] { calm::read_into(stored(three), std::span(two), "file"); },
         "file, tensor 'x': expected 2 elements, found 3 of shape [3]");
    std::vector<std::int32_t> const whole{1, 2};
    says([&] { calm::read_into(stored(whole), std::span(two), "file"); },
         "file, tensor 'x': expected type F16, BF16, F32 or F64, found I32");
    std::vector<double> const large{1, 1e300};
    says([&] { calm::read_into(stored(large), std::span(two), "file"); },
         "file, tensor 'x': expected values that a float can hold, found a larger one");
    std::vector<double> const endless{-0x1p-200, std::numeric_limits<double>::infinity()};
    calm::read_into(stored(endless), std::span(two), "file");
    BOOST_TEST((two == std::vector<float>{0, std::numeric_limits<float>::infinity()}));
    says([&] { (void)calm::integers_of(stored(three), "file"); },
         "file, tensor 'x': expected integers or booleans, found F32");
    says([&] { (void)calm::integers_of(stored(std::vector<std::uint64_t>{1ULL << 63}), "file"); },
         "file, tensor 'x': expected integers below 2^63, found a larger one");
}
