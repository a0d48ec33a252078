#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "support/typed.hpp"

namespace {

using calm::extents;
using calm::index_t;
using calm::key;
using calm::stream;

using vector_shape = extents<calm::dyn>;
constexpr key k{0xFEDCBA9876543210ULL, stream::head_noise, 3};
// Blocks of four; the second word of their counter changes at 2^34 elements, in an even block or in an odd one.
constexpr std::array<std::uint64_t, 5> starts{0, 3, (std::uint64_t{1} << 34) - 70, (std::uint64_t{1} << 34) - 68,
                                              (std::uint64_t{1} << 40) + 2};

using real_types = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(normals_match_their_definition, T, real_types) {
    for (std::uint64_t const first : starts) {
        std::vector<T> x(20000);
        calm::normals(x.data(), static_cast<index_t>(x.size()), k, first);
        double worst = 0.0;
        for (std::size_t i = 0; i < x.size(); ++i)
            worst = std::max(worst, std::abs(static_cast<double>(x[i]) - calm::normal<double>(k, first + i)));
        BOOST_TEST(worst <= (sizeof(T) == 4 ? 1e-6 : 1e-14));
    }
}

// Words that Box-Muller meets once in billions of draws: u1 near 0 and near 1, angles at the ends of the quadrants.
BOOST_AUTO_TEST_CASE(normals_of_extreme_words) {
    std::vector<std::uint32_t> words;
    for (std::uint32_t const base : {0U, 0x20000000U, 0x40000000U, 0x7FFFFFF0U, 0xB504F334U, 0xE0000000U, 0xFFFFFFFFU})
        for (std::uint32_t near = 0; near < 40; ++near) {
            words.push_back(base + near);
            words.push_back(base - near);
        }
    for (std::uint32_t const w : words) {
        auto const packed = calm::splat<calm::packet<float>>(0.0F);
        auto const at = std::bit_cast<calm::bits_t<calm::packet<float>>>(packed) + w;
        double const want = std::sqrt(-2.0 * std::log((static_cast<double>(w) + 1.0) * 0x1p-32));
        BOOST_REQUIRE(std::abs(static_cast<double>(calm::detail::radius(at)[5]) - want) <= 3e-7 * want);
        auto const [cosine, sine] = calm::detail::turn_of(at);
        double const angle = 6.283185307179586 * static_cast<double>(w) * 0x1p-32;
        BOOST_REQUIRE(std::abs(static_cast<double>(cosine[5]) - std::cos(angle)) <= 1.2e-7);
        BOOST_REQUIRE(std::abs(static_cast<double>(sine[5]) - std::sin(angle)) <= 1.2e-7);
    }
}

// Bit-identical for every start, length and position of an element in a packet.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_part_equals_the_whole, T, real_types) {
    constexpr index_t n = 517;
    std::vector<T> whole(n);
    calm::normals(whole.data(), n, k, 1000);
    for (index_t begin = 0; begin < 140; ++begin)
        for (index_t const count :
             {index_t{0}, index_t{1}, index_t{3}, index_t{63}, index_t{64}, index_t{200}, n - begin}) {
            std::vector<T> part(static_cast<std::size_t>(count));
            calm::normals(part.data(), count, k, 1000 + static_cast<std::uint64_t>(begin));
            BOOST_REQUIRE(std::equal(part.begin(), part.end(), whole.begin() + begin));
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(threads_change_nothing, on, calm::test::test_devices) {
    using T = typename on::scalar;
    typename on::vector one(vector_shape(50001));
    typename on::vector two(vector_shape(50001));
    typename on::context const alone(1, 1);
    typename on::context pair(1, 2);
    pair.order = calm::thread_order::permuted;
    calm::fill_normal(alone, one.view(), k, 5);
    calm::fill_normal(pair, two.view(), k, 5);
    BOOST_TEST(std::equal(one.begin(), one.end(), two.begin()));
    calm::fill_uniform(alone, one.view(), k, 5, T(-0.5));
    calm::fill_uniform(pair, two.view(), k, 5, T(-0.5));
    BOOST_TEST(std::equal(one.begin(), one.end(), two.begin()));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(normals_of_a_tensor, on, calm::test::test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 2);
    for (std::uint64_t const first : starts)
        for (index_t const n : {1, 2, 3, 4, 5, 20001}) {
            typename on::vector x(vector_shape{n});
            calm::fill_normal(ctx, x.view(), k, first);
            double worst = 0.0;
            for (index_t i = 0; i < n; ++i) {
                double const want = calm::normal<double>(k, first + static_cast<std::uint64_t>(i));
                worst = std::max(worst, std::abs(static_cast<double>(x[i]) - want));
            }
            BOOST_TEST(worst <= (sizeof(T) == 4 ? 1e-6 : 1e-14));
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(uniforms_match_their_definition, on, calm::test::test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 1);
    for (std::uint64_t const first : starts) {
        typename on::vector x(vector_shape(1001));
        calm::fill_uniform(ctx, x.view(), k, first, T(-0.5));
        for (index_t i = 0; i < x.size(); ++i)
            BOOST_REQUIRE(x[i] == static_cast<T>(calm::uniform(k, first + static_cast<std::uint64_t>(i))) - T(0.5));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(masks_keep_undropped_elements, on, calm::test::test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 1);
    typename on::vector x(vector_shape(20001));
    calm::fill_bernoulli_keep(ctx, x.view(), k, 0.15F, T(1.25));
    index_t kept = 0;
    for (index_t i = 0; i < x.size(); ++i) {
        bool const keep = calm::uniform(k, static_cast<std::uint64_t>(i)) >= 0.15F;
        BOOST_REQUIRE(x[i] == (keep ? T(1.25) : T(0)));
        kept += keep ? 1 : 0;
    }
    BOOST_TEST(std::abs(static_cast<double>(kept) / 20001.0 - 0.85) < 0.013);
    calm::fill_bernoulli_keep(ctx, x.view(), k, 0.0F, T(1));
    BOOST_TEST(std::all_of(x.begin(), x.end(), [](T t) { return t == T(1); }));
    calm::fill_bernoulli_keep(ctx, x.view(), k, 1.0F, T(1));
    BOOST_TEST(std::all_of(x.begin(), x.end(), [](T t) { return t == T(0); }));
}

BOOST_AUTO_TEST_CASE(complex_numbers_get_real_noise) {
    std::vector<std::complex<double>> z(70);
    std::vector<double> x(70);
    calm::normals(z.data(), 70, k, 9);
    calm::normals(x.data(), 70, k, 9);
    for (std::size_t i = 0; i < z.size(); ++i) BOOST_TEST((z[i] == std::complex<double>(x[i])));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(empty_views_are_left_alone, on, calm::test::test_devices) {
    typename on::context const ctx(1, 1);
    typename on::vector x(vector_shape(0));
    calm::fill_normal(ctx, x.view(), k);
    calm::fill_uniform(ctx, x.view(), k);
    calm::fill_bernoulli_keep(ctx, x.view(), k, 0.5F);
    BOOST_TEST(x.size() == 0);
}

}  // namespace
