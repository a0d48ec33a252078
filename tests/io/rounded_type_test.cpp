#include "calm/io/detail/rounded_type.hpp"

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class T> std::vector<T> rounded(stored_type as, stored_tensor const& tensor) {
    std::vector<T> all;
    rounded_to(as, tensor, [&](std::span<std::byte const> bytes) {
        auto const before = all.size();
        all.resize(before + bytes.size() / sizeof(T));
        if (!bytes.empty()) std::memcpy(all.data() + before, bytes.data(), bytes.size());
    });
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_value_of_16_bits_comes_back) {
    for (std::uint32_t i = 0; i < 65536; ++i) {
        auto const bits = static_cast<std::uint16_t>(i);
        float const half = detail::from_f16(bits);
        float const brain = detail::from_bf16(bits);
        if (std::isnan(half))
            BOOST_REQUIRE(std::isnan(detail::from_f16(to_f16(half))));
        else
            BOOST_REQUIRE(to_f16(half) == bits);
        if (std::isnan(brain))
            BOOST_REQUIRE(std::isnan(detail::from_bf16(to_bf16(brain))));
        else
            BOOST_REQUIRE(to_bf16(brain) == bits);
    }
}

// Values between two neighbours round to the nearer one, ties to the one whose last bit is 0.
BOOST_AUTO_TEST_CASE(values_between_round_to_the_nearest_and_ties_to_even) {
    for (std::uint32_t i = 0; i < 0x7BFF; ++i) {
        auto const low = static_cast<std::uint16_t>(i);
        auto const high = static_cast<std::uint16_t>(i + 1);
        double const a = detail::from_f16(low);
        double const b = detail::from_f16(high);
        double const middle = (a + b) / 2;
        BOOST_REQUIRE(to_f16(middle) == (i % 2 == 0 ? low : high));
        BOOST_REQUIRE(to_f16(std::nextafter(middle, 0.0)) == low);
        BOOST_REQUIRE(to_f16(std::nextafter(middle, 1e9)) == high);
        BOOST_REQUIRE(to_f16(-middle) == (0x8000U | (i % 2 == 0 ? low : high)));
    }
    for (std::uint32_t i = 0; i < 0x7F7F; ++i) {
        double const a = detail::from_bf16(static_cast<std::uint16_t>(i));
        double const b = detail::from_bf16(static_cast<std::uint16_t>(i + 1));
        BOOST_REQUIRE(to_bf16((a + b) / 2) == i + i % 2);
        BOOST_REQUIRE(to_bf16(std::nextafter((a + b) / 2, 0.0)) == i);
        BOOST_REQUIRE(to_bf16(std::nextafter((a + b) / 2, 1e300)) == i + 1);
    }
    // Rounded once, not via float: just above a tie that rounding to float would produce.
    double const above = 1 + 0x1p-8 + 0x1p-40;
    BOOST_TEST(to_bf16(above) == 0x3F81U);
    BOOST_TEST(to_bf16(static_cast<double>(static_cast<float>(above))) == 0x3F80U);
    BOOST_TEST(to_f16(65519.9) == 0x7BFFU);
    BOOST_TEST(to_f16(65520.0) == 0x7C00U);
    BOOST_TEST(to_f16(-1e300) == 0xFC00U);
    BOOST_TEST(to_f16(0x1p-25) == 0U);
    BOOST_TEST(to_f16(std::nextafter(0x1p-25, 1.0)) == 1U);
    BOOST_TEST(to_f16(std::numeric_limits<double>::denorm_min()) == 0U);
    BOOST_TEST(to_f16(-0.0) == 0x8000U);
    BOOST_TEST(to_bf16(std::numeric_limits<double>::infinity()) == 0x7F80U);
    BOOST_TEST(std::isnan(detail::from_bf16(to_bf16(std::numeric_limits<double>::quiet_NaN()))));
    BOOST_TEST(std::isnan(detail::from_f16(to_f16(std::numeric_limits<double>::signaling_NaN()))));
}

BOOST_AUTO_TEST_CASE(bf16_of_a_float_is_the_usual_rounding_of_its_bits) {
    random_sequence random(key{.seed = 3});
    for (int i = 0; i < 100'000; ++i) {
        auto const bits = random.below(0x7F000000U) | (random.below(2) << 31);
        auto const usual = static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
        BOOST_REQUIRE(to_bf16(std::bit_cast<float>(bits)) == usual);
    }
}

BOOST_AUTO_TEST_CASE(a_tensor_is_rounded_block_by_block) {
    std::vector<float> values(200'001);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(i + 1);
    auto const tensor = to_store("x", {static_cast<index_t>(values.size())}, std::span<float const>(values));
    auto const half = rounded<std::uint16_t>(stored_type::f16, tensor);
    auto const brain = rounded<std::uint16_t>(stored_type::bf16, tensor);
    auto const wide = rounded<double>(stored_type::f64, tensor);
    BOOST_REQUIRE(half.size() == values.size());
    BOOST_REQUIRE(brain.size() == values.size());
    BOOST_REQUIRE(wide.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        BOOST_REQUIRE(half[i] == to_f16(values[i]));
        BOOST_REQUIRE(brain[i] == to_bf16(values[i]));
        BOOST_REQUIRE(wide[i] == double{values[i]});
    }
    // Equal types, and integers, are passed through.
    std::size_t calls = 0;
    rounded_to(stored_type::f32, tensor, [&](std::span<std::byte const> bytes) {
        ++calls;
        BOOST_TEST((bytes.data() == tensor.bytes.data()));
        BOOST_TEST(bytes.size() == tensor.bytes.size());
    });
    BOOST_TEST(calls == 1U);
    std::vector<std::int64_t> const ids{1, 2};
    BOOST_TEST((rounded<std::int64_t>(stored_type::f16, to_store("i", {2}, std::span(ids))) == ids));
}

BOOST_AUTO_TEST_CASE(a_value_that_does_not_fit_is_named) {
    std::vector<float> const values{1, 70000, 3};
    auto const tensor = to_store("some.weight", {3}, std::span(values));
    auto const said = sentence_of<error>([&] { rounded<std::uint16_t>(stored_type::f16, tensor); });
    BOOST_TEST(has(said, "tensor 'some.weight': expected values that F16 can hold, found 70000"), said);
    BOOST_TEST(rounded<std::uint16_t>(stored_type::bf16, tensor).size() == 3U);
    std::vector<float> const infinite{std::numeric_limits<float>::infinity()};
    BOOST_TEST(rounded<std::uint16_t>(stored_type::f16, to_store("x", {1}, std::span(infinite)))[0] == 0x7C00U);
    std::vector<double> const large{1e300};
    BOOST_TEST(
        !sentence_of<error>([&] { rounded<float>(stored_type::f32, to_store("x", {1}, std::span(large))); }).empty());
}

BOOST_AUTO_TEST_CASE(types_have_names) {
    for (auto const type : {stored_type::f16, stored_type::bf16, stored_type::f32, stored_type::f64})
        BOOST_TEST((float_type_named(torch_name_of(type)) == type));
    BOOST_TEST((float_type_named("bf16") == stored_type::bf16));
    BOOST_TEST(has(usage_sentence([] { static_cast<void>(float_type_named("int8")); }), "found 'int8'"));
}
