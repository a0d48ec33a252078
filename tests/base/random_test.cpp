#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "calm/base/random.hpp"

namespace {

using calm::key;
using calm::stream;

constexpr key pinned{0x0123456789ABCDEFULL, stream::target, 7};

// The three published test vectors of Philox4x32-10.
static_assert(calm::philox({{0, 0, 0, 0}}, 0, 0) ==
              calm::philox_block{{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U}});
static_assert(calm::philox({{~0U, ~0U, ~0U, ~0U}}, ~0U, ~0U) ==
              calm::philox_block{{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU}});
static_assert(calm::philox({{0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}}, 0xA4093822U, 0x299F31D0U) ==
              calm::philox_block{{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U}});

BOOST_AUTO_TEST_CASE(known_answers_at_run_time) {
    calm::philox_block counter{{0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}};
    auto const got = calm::philox(counter, 0xA4093822U, 0x299F31D0U);
    std::array<std::uint32_t, 4> const want{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U};
    BOOST_TEST(got.v == want, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_key_is_laid_out_as_documented) {
    key const k{0xAAAAAAAABBBBBBBBULL, stream::posterior, 9};
    std::uint64_t const position = 0x1111111122222222ULL;
    BOOST_TEST((calm::philox(k, position) ==
                calm::philox({{0x22222222U, 0x11111111U, 9, static_cast<std::uint32_t>(stream::posterior)}},
                             0xBBBBBBBBU, 0xAAAAAAAAU)));
}

// Every result depends on these random values, so they must never change.
BOOST_AUTO_TEST_CASE(eight_pinned_uniforms) {
    std::array<double, 8> const want{0.5881589651107788, 0.8799721002578735, 0.6781915426254272, 0.2739418148994446,
                                     0.4233412742614746, 0.4842074513435364, 0.8410581946372986, 0.6924591064453125};
    for (std::size_t i = 0; i < want.size(); ++i) {
        std::uint64_t const at = i < 4 ? i : 1000000000000ULL + i;
        BOOST_TEST(static_cast<double>(calm::uniform(pinned, at)) == want[i]);
    }
}

BOOST_AUTO_TEST_CASE(eight_pinned_normals) {
    std::array<double, 8> const want{0.750932177367546777,  -0.70541953228192205, -0.13207198991099919,
                                     0.87132536176260509,   -1.30471520627285562, 0.12989013039059451,
                                     -0.208118166060224482, -0.550341355973916721};
    for (std::size_t i = 0; i < want.size(); ++i) {
        std::uint64_t const at = i < 4 ? i : 1000000000000ULL + i;
        BOOST_TEST(std::abs(calm::normal<double>(pinned, at) - want[i]) <= 1e-14);
        BOOST_TEST(calm::normal<float>(pinned, at) == static_cast<float>(calm::normal<double>(pinned, at)));
    }
}

BOOST_AUTO_TEST_CASE(streams_steps_and_seeds_are_unrelated) {
    auto const base = calm::philox(pinned, 5);
    BOOST_TEST(!(base == calm::philox(key{pinned.seed + 1, pinned.stream, pinned.step}, 5)));
    BOOST_TEST(!(base == calm::philox(key{pinned.seed, stream::head_noise, pinned.step}, 5)));
    BOOST_TEST(!(base == calm::philox(key{pinned.seed, pinned.stream, pinned.step + 1}, 5)));
    BOOST_TEST(!(base == calm::philox(pinned, 6)));
}

// Chi-square over 64 cells has 63 degrees of freedom; the bound is 5 standard deviations above.
BOOST_AUTO_TEST_CASE(uniforms_and_integers_are_uniform) {
    constexpr int n = 64000;
    std::array<int, 64> cells{};
    std::array<int, 10> digits{};
    calm::random_sequence sequence(pinned);
    for (std::uint64_t i = 0; i < n; ++i) {
        float const u = calm::uniform(pinned, i);
        BOOST_REQUIRE((u >= 0.0F && u < 1.0F));
        ++cells[static_cast<std::size_t>(u * 64.0F)];
        ++digits[sequence.below(10)];
    }
    double square = 0.0;
    for (int const count : cells) square += (count - 1000.0) * (count - 1000.0) / 1000.0;
    BOOST_TEST(square < 63.0 + 5.0 * std::sqrt(126.0));
    double digit_square = 0.0;
    for (int const count : digits) digit_square += (count - 6400.0) * (count - 6400.0) / 6400.0;
    BOOST_TEST(digit_square < 9.0 + 5.0 * std::sqrt(18.0));
}

BOOST_AUTO_TEST_CASE(normals_have_the_moments_of_normals) {
    constexpr int n = 100000;
    std::array<double, 5> moment{};
    double neighbours = 0.0;
    double previous = 0.0;
    for (std::uint64_t i = 0; i < n; ++i) {
        double const x = calm::normal<double>(pinned, i);
        double power = 1.0;
        for (double& m : moment) {
            m += power / n;
            power *= x;
        }
        neighbours += x * previous / n;
        previous = x;
    }
    double const root = std::sqrt(static_cast<double>(n));
    BOOST_TEST(std::abs(moment[1]) < 5.0 / root);
    BOOST_TEST(std::abs(moment[2] - 1.0) < 5.0 * std::sqrt(2.0) / root);
    BOOST_TEST(std::abs(moment[3]) < 5.0 * std::sqrt(15.0) / root);
    BOOST_TEST(std::abs(moment[4] - 3.0) < 5.0 * std::sqrt(96.0) / root);
    BOOST_TEST(std::abs(neighbours) < 5.0 / root);
}

BOOST_AUTO_TEST_CASE(a_sequence_reads_the_words_in_order) {
    calm::random_sequence sequence(pinned, 3);
    for (std::uint64_t i = 12; i < 24; ++i) BOOST_TEST(sequence.next() == calm::philox(pinned, i / 4).v[i % 4]);
    BOOST_TEST(sequence.uniform() == calm::uniform(pinned, 24));
}

BOOST_AUTO_TEST_CASE(below_stays_below) {
    BOOST_TEST(calm::below(0, 7) == 0U);
    BOOST_TEST(calm::below(~0U, 7) == 6U);
    BOOST_TEST(calm::below(~0U, 1) == 0U);
}

}  // namespace
