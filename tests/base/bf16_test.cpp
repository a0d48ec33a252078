// io/rounded_type tests rounding for files and values between two bf16 numbers.
#include "calm/base/bf16.hpp"

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

using calm::bf16;

BOOST_AUTO_TEST_CASE(numbers_have_the_bits_of_the_bf16_standard) {
    struct row {
        double number;
        unsigned bits;
    };
    constexpr double inf = std::numeric_limits<double>::infinity();
    for (auto const [number, bits] :
         {row{0.0, 0x0000}, row{-0.0, 0x8000}, row{1.0, 0x3F80}, row{-2.0, 0xC000}, row{3.140625, 0x4049},
          row{0.1, 0x3DCD}, row{0x1.FEp127, 0x7F7F},                                 // the largest
          row{0x1p-126, 0x0080},                                                     // the smallest normal number
          row{0x1p-133, 0x0001},                                                     // the smallest subnormal number
          row{0x1p-134, 0x0000},                                                     // half the smallest: a tie
          row{0x1.8p-133, 0x0002}, row{-0x1p-200, 0x8000}, row{0x1.FFp127, 0x7F80},  // half a step above the largest
          row{-1e300, 0xFF80}, row{inf, 0x7F80}, row{-inf, 0xFF80}, row{1 + 0x1p-8, 0x3F80}, row{1 + 0x3p-8, 0x3F82}}) {
        BOOST_TEST(bf16(number).bits == bits, number);
        if (std::abs(number) <= 0x1.FEp127 && static_cast<double>(bf16::of(static_cast<std::uint16_t>(bits))) == number)
            BOOST_TEST(std::signbit(static_cast<float>(bf16(number))) == std::signbit(number));
    }
    BOOST_TEST(std::isnan(static_cast<float>(bf16(std::numeric_limits<double>::quiet_NaN()))));
    BOOST_TEST(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::signaling_NaN()))));
    // A NaN whose payload is only in the dropped bits stays a NaN.
    BOOST_TEST(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7F800001U)))));
}

BOOST_AUTO_TEST_CASE(every_one_of_them_is_a_float_and_comes_back) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        auto const one = bf16::of(static_cast<std::uint16_t>(bits));
        float const number = one;
        if (std::isnan(number))
            BOOST_REQUIRE(((bits & 0x7F80U) == 0x7F80U && (bits & 0x7FU) != 0));
        else
            BOOST_REQUIRE(bf16(number).bits == bits);
    }
    static_assert(sizeof(bf16) == 2 && std::is_trivial_v<bf16>);
    static_assert(!std::is_convertible_v<float, bf16>);  // a lossy conversion must be explicit
}

// Around every bf16 value and its midpoint to the next: float rounds like double.
BOOST_AUTO_TEST_CASE(a_float_is_rounded_as_a_double_is) {
    for (std::uint32_t high = 0; high < 65536; ++high)
        for (std::uint32_t const low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
            auto const x = std::bit_cast<float>(high << 16U | low);
            BOOST_REQUIRE(bf16(x).bits == bf16(double{x}).bits);
        }
}

// Each of the 2^16 random numbers once: the result is one of two neighbours, the farther from zero as often as the
// dropped bits say, so the mean is exact. Infinity counts as 2^128.
BOOST_AUTO_TEST_CASE(stochastic_rounding_is_unbiased) {
    for (float const x : {1.3F, -0.7F, 0.1F, -0x1.FFFFFEp-1F, 0x1.000002p0F, -0x1.FFFFFEp9F, 0x1.2345p-126F,
                          0x1.2346p-130F, -0x1p-149F, 0x1.FFFFFEp127F, -0x1.FE0002p127F}) {
        auto const below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
        std::uint32_t farther = 0;
        double sum = 0;
        for (std::uint32_t random = 0; random < 65536; ++random) {
            auto const rounded = bf16::at_random(x, random);
            BOOST_REQUIRE((rounded.bits == below || rounded.bits == below + 1));
            BOOST_REQUIRE(rounded.bits == bf16::at_random(x, random | 0xABCD0000U).bits);
            farther += rounded.bits == below ? 0 : 1;
            float const number = rounded;
            sum += std::isinf(number) ? std::copysign(0x1p128, number) : number;
        }
        BOOST_TEST(farther == (std::bit_cast<std::uint32_t>(x) & 0xFFFFU), x);
        BOOST_TEST(sum / 65536 == double{x}, x);
    }
}

BOOST_AUTO_TEST_CASE(exact_values_and_nan_are_not_rounded) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
        for (std::uint32_t const random : {0U, 1U, 0x8000U, 0xFFFFU}) {
            float const number = bf16::of(static_cast<std::uint16_t>(bits));
            auto const rounded = bf16::at_random(number, random);
            if (std::isnan(number))
                BOOST_REQUIRE(std::isnan(static_cast<float>(rounded)));
            else
                BOOST_REQUIRE(rounded.bits == bits);
        }
    for (std::uint32_t const nan : {0x7F800001U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU})
        for (std::uint32_t const random : {0U, 0xFFFFU})
            BOOST_TEST(std::isnan(static_cast<float>(bf16::at_random(std::bit_cast<float>(nan), random))));
}
