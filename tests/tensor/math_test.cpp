#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/tensor/core/math.hpp"

namespace {

namespace math = calm::math;
using calm::lanes;
using calm::packet;

// Error in units in the last place (subnormals included); infinite if only one of the two is finite.
template <class T> double ulps(T got, long double want) {
    using limits = std::numeric_limits<T>;
    if (std::isnan(want)) return std::isnan(got) ? 0.0 : limits::infinity();
    if (std::isinf(static_cast<T>(want)) || std::isinf(got))
        return got == static_cast<T>(want) ? 0.0 : limits::infinity();
    int exponent = 0;
    std::frexp(want, &exponent);
    int const last = std::max(exponent, limits::min_exponent) - limits::digits;
    return static_cast<double>(std::abs((static_cast<long double>(got) - want) / std::ldexp(1.0L, last)));
}

// Random samples of a range of reals, or of all positive bit patterns if low == high.
template <class T> std::vector<T> samples(double low, double high) {
    std::vector<T> x(16384);
    calm::random_sequence random({11, calm::stream::evaluation, 0});
    for (T& each : x) {
        std::uint64_t const word = (std::uint64_t{random.next()} << 32U) | random.next();
        if (low < high)
            each = static_cast<T>(low + (high - low) * static_cast<double>(word >> 11U) * 0x1p-53);
        else if constexpr (sizeof(T) == 4)
            each = std::bit_cast<float>(static_cast<std::uint32_t>(word % 0x7F800000U));
        else
            each = std::bit_cast<double>(word % 0x7FF0000000000000U);
    }
    return x;
}

template <class T, class F, class Exact> double worst(F const& f, Exact const& exact, double low, double high) {
    using V = packet<T>;
    auto const x = samples<T>(low, high);
    double most = 0.0;
    for (std::size_t i = 0; i + static_cast<std::size_t>(lanes<V>) <= x.size();
         i += static_cast<std::size_t>(lanes<V>)) {
        std::array<T, static_cast<std::size_t>(lanes<V>)> y{};
        calm::store(y.data(), static_cast<V>(f(calm::load<V>(x.data() + i))));
        for (std::size_t j = 0; j < y.size(); ++j)
            most = std::max(most, ulps<T>(y[j], exact(static_cast<long double>(x[i + j]))));
    }
    return most;
}

using real_types = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(packets_are_close_to_exact, T, real_types) {
    double const end = sizeof(T) == 4 ? 110.0 : 760.0;
    auto const exp = [](auto v) { return math::exp(v); };
    auto const exact_exp = [](long double x) { return std::exp(x); };
    BOOST_TEST((worst<T>(exp, exact_exp, -end, end)) <= 2.0);
    BOOST_TEST((worst<T>(exp, exact_exp, -1.0, 1.0)) <= 2.0);
    auto const log = [](auto v) { return math::log(v); };
    auto const exact_log = [](long double x) { return std::log(x); };
    BOOST_TEST((worst<T>(log, exact_log, 0.0, 0.0)) <= 2.0);
    BOOST_TEST((worst<T>(log, exact_log, 0.5, 2.0)) <= 2.0);
    BOOST_TEST(
        (worst<T>([](auto v) { return math::tanh(v); }, [](long double x) { return std::tanh(x); }, -4.0, 4.0)) <= 2.0);
    BOOST_TEST((worst<T>([](auto v) { return math::sqrt(v); }, [](long double x) { return std::sqrt(x); }, 0.0, 0.0)) <=
               0.5001);
    BOOST_TEST((worst<T>([](auto v) { return math::sigmoid(v); },
                         [](long double x) { return 1.0L / (1.0L + std::exp(-x)); }, -30.0, 30.0)) <= 4.0);
    BOOST_TEST((worst<T>([](auto v) { return math::silu(v); }, [](long double x) { return x / (1.0L + std::exp(-x)); },
                         -30.0, 30.0)) <= 4.0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(edges_of_packets, T, real_types) {
    using V = packet<T>;
    T const inf = std::numeric_limits<T>::infinity();
    T const nan = std::numeric_limits<T>::quiet_NaN();
    auto const at = [](auto f, T x) { return static_cast<T>(V(f(calm::splat<V>(x)))[lanes<V> - 1]); };
    auto const exp = [](V v) { return math::exp(v); };
    auto const log = [](V v) { return math::log(v); };
    auto const tanh = [](V v) { return math::tanh(v); };
    BOOST_TEST(at(exp, -inf) == T(0));
    BOOST_TEST(at(exp, T(-1e30)) == T(0));
    BOOST_TEST(at(exp, T(0)) == T(1));
    BOOST_TEST(at(exp, inf) == inf);
    BOOST_TEST(at(exp, T(1e30)) == inf);
    BOOST_TEST(std::isnan(at(exp, nan)));
    BOOST_TEST(at(log, T(0)) == -inf);
    BOOST_TEST(at(log, T(-0.0)) == -inf);
    BOOST_TEST(at(log, T(1)) == T(0));
    BOOST_TEST(at(log, inf) == inf);
    BOOST_TEST(std::isnan(at(log, T(-1))));
    BOOST_TEST(std::isnan(at(log, -inf)));
    BOOST_TEST(std::isnan(at(log, nan)));
    BOOST_TEST(at(tanh, inf) == T(1));
    BOOST_TEST(at(tanh, -inf) == T(-1));
    BOOST_TEST(std::isnan(at(tanh, nan)));
    BOOST_TEST(at([](V v) { return math::sigmoid(v); }, T(-1e4)) == T(0));
    BOOST_TEST(at([](V v) { return math::sigmoid(v); }, T(1e4)) == T(1));
    BOOST_TEST(at([](V v) { return math::silu(v); }, T(-1e4)) == T(0));
    BOOST_TEST(at([](V v) { return math::abs(v); }, T(-2)) == T(2));
    BOOST_TEST(!std::signbit(at([](V v) { return math::abs(v); }, T(-0.0))));
    BOOST_TEST(std::isnan(at([](V v) { return math::sqrt(v); }, T(-1))));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(turns, T, real_types) {
    using V = packet<T>;
    double most = 0.0;
    for (T const u : samples<T>(0.0, 1.0)) {
        auto const packed = math::sin_cos_turns(calm::splat<V>(u));
        auto const scalar = math::sin_cos_turns(u);
        long double const angle = 6.283185307179586476925L * static_cast<long double>(u);
        for (int lane : {0, lanes<V> - 1}) {
            most = std::max(most, static_cast<double>(std::abs(packed.cosine[lane] - std::cos(angle))));
            most = std::max(most, static_cast<double>(std::abs(packed.sine[lane] - std::sin(angle))));
        }
        BOOST_REQUIRE(std::abs(scalar.cosine - packed.cosine[0]) <= 8 * std::numeric_limits<T>::epsilon());
        BOOST_REQUIRE(std::abs(scalar.sine - packed.sine[0]) <= 8 * std::numeric_limits<T>::epsilon());
    }
    BOOST_TEST(most <= 1.0 * std::numeric_limits<T>::epsilon());
    for (int quarter = 0; quarter <= 4; ++quarter) {
        auto const exact = math::sin_cos_turns(calm::splat<V>(T(0.25) * static_cast<T>(quarter)));
        BOOST_TEST(exact.cosine[0] == (quarter % 2 == 1 ? T(0) : quarter == 2 ? T(-1) : T(1)));
        BOOST_TEST(exact.sine[0] == (quarter % 2 == 0 ? T(0) : quarter == 1 ? T(1) : T(-1)));
    }
}

// Im f(x + ih) / h is the derivative up to rounding; every function here supports it.
BOOST_AUTO_TEST_CASE(complex_step) {
    using complex = std::complex<double>;
    constexpr double h = 1e-100;
    auto const slope = [](auto f, double x) { return f(complex(x, h)).imag() / h; };
    for (double const x : {-700.0, -3.0, -0.7, 0.3, 1.0, 2.5, 700.0}) {
        BOOST_TEST_CONTEXT("x = " << x) {
            double const s = math::sigmoid(x);
            double const t = math::tanh(x);
            auto const near = boost::test_tools::tolerance(1e-13);
            BOOST_TEST(slope([](complex z) { return math::exp(z); }, x) == std::exp(x), near);
            BOOST_TEST(slope([](complex z) { return math::square(z); }, x) == 2.0 * x, near);
            BOOST_TEST(slope([](complex z) { return math::abs(z); }, x) == (x < 0.0 ? -1.0 : 1.0), near);
            BOOST_TEST(slope([](complex z) { return math::max(z, complex(0.5)); }, x) == (x > 0.5 ? 1.0 : 0.0), near);
            BOOST_TEST(slope([](complex z) { return math::min(z, complex(0.5)); }, x) == (x > 0.5 ? 0.0 : 1.0), near);
            BOOST_TEST(std::abs(slope([](complex z) { return math::tanh(z); }, x) - (1.0 - t * t)) <= 1e-13);
            BOOST_TEST(std::abs(slope([](complex z) { return math::sigmoid(z); }, x) - s * (1.0 - s)) <= 1e-13);
            BOOST_TEST(std::abs(slope([](complex z) { return math::silu(z); }, x) - s * (1.0 + x * (1.0 - s))) <=
                       1e-12);
            if (x > 0.0) {
                BOOST_TEST(slope([](complex z) { return math::log(z); }, x) == 1.0 / x, near);
                BOOST_TEST(slope([](complex z) { return math::sqrt(z); }, x) == 0.5 / std::sqrt(x), near);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(comparisons, T, real_types) {
    using V = packet<T>;
    V const a = calm::splat<V>(T(1));
    V b = calm::splat<V>(T(2));
    b[0] = T(-2);
    BOOST_TEST(math::max(a, b)[0] == T(1));
    BOOST_TEST(math::max(a, b)[1] == T(2));
    BOOST_TEST(math::min(a, b)[0] == T(-2));
    BOOST_TEST(math::min(a, b)[1] == T(1));
    BOOST_TEST(math::where_greater(a, b, a, V{})[0] == T(1));
    BOOST_TEST(math::where_greater(a, b, a, V{})[1] == T(0));
    BOOST_TEST(math::max(T(1), T(2)) == T(2));
    BOOST_TEST(math::abs(T(-3)) == T(3));
    BOOST_TEST(math::square(T(-3)) == T(9));
}

}  // namespace
