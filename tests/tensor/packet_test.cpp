#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "calm/tensor/core/packet.hpp"

namespace {

using calm::lanes;
using calm::packet;

static_assert(lanes<packet<float>> == 16 && sizeof(packet<float>) == 64);
static_assert(lanes<packet<double>> == 8 && sizeof(packet<double>) == 64);
static_assert(std::is_same_v<packet<std::complex<double>>, std::complex<double>>);
static_assert(std::is_same_v<packet<std::int32_t>, std::int32_t> && lanes<std::int32_t> == 1);
static_assert(std::is_same_v<calm::lane_t<packet<float>>, float>);
static_assert(std::is_same_v<calm::lane_t<std::complex<double>>, std::complex<double>>);
static_assert(calm::packed<packet<double>> && !calm::packed<double>);

template <class T> std::array<T, 40> numbers() {
    std::array<T, 40> x{};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(std::sin(static_cast<double>(i + 1)) * 10.0);
    return x;
}

template <class T> void round_trips() {
    using V = packet<T>;
    auto const x = numbers<T>();
    for (std::size_t offset = 0; offset < 8; ++offset) {  // any alignment
        std::array<T, 40> y{};
        calm::store(y.data() + offset, calm::load<V>(x.data() + offset));
        for (std::size_t i = 0; i < y.size(); ++i)
            BOOST_TEST(y[i] == (i >= offset && i < offset + static_cast<std::size_t>(lanes<V>) ? x[i] : T{}));
    }
}

BOOST_AUTO_TEST_CASE(load_and_store) {
    round_trips<float>();
    round_trips<double>();
    double const x = 2.5;
    double y = 0.0;
    calm::store(&y, calm::load<double>(&x));
    BOOST_TEST(y == 2.5);
}

template <class T> void splats() {
    using V = packet<T>;
    for (T const t : {T(0), T(-0.0), T(1.5), T(-3e30)}) {
        V const v = calm::splat<V>(t);
        for (int i = 0; i < lanes<V>; ++i) BOOST_TEST((v[i] == t && std::signbit(v[i]) == std::signbit(t)));
    }
    BOOST_TEST(std::isnan(calm::splat<V>(static_cast<T>(NAN))[lanes<V> - 1]));
}

BOOST_AUTO_TEST_CASE(splat_fills_every_lane) {
    splats<float>();
    splats<double>();
    BOOST_TEST(calm::splat<float>(2.0F) == 2.0F);
}

// Adds halves until one lane is left: a fixed order, so the bits are the same everywhere.
template <class T> void sums() {
    using V = packet<T>;
    auto x = numbers<T>();
    T const got = calm::sum(calm::load<V>(x.data()));
    for (int n = lanes<V> / 2; n > 0; n /= 2)
        for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] += x[static_cast<std::size_t>(i + n)];
    BOOST_TEST(got == x[0]);
}

BOOST_AUTO_TEST_CASE(sum_is_a_fixed_tree) {
    sums<float>();
    sums<double>();
    BOOST_TEST(calm::sum(4.0) == 4.0);
}

template <class T> void selects() {
    using V = packet<T>;
    auto const x = numbers<T>();
    V const a = calm::load<V>(x.data());
    V const b = calm::load<V>(x.data() + 20);
    V const chosen = calm::select(a > b, a, b);
    for (int i = 0; i < lanes<V>; ++i) {
        auto const at = static_cast<std::size_t>(i);
        BOOST_TEST(chosen[i] == (x[at] > x[at + 20] ? x[at] : x[at + 20]));
    }
}

BOOST_AUTO_TEST_CASE(select_takes_lanes) {
    selects<float>();
    selects<double>();
    BOOST_TEST(calm::select(true, 1.0, 2.0) == 1.0);
}

}  // namespace
