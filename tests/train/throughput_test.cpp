#include "calm/train/throughput.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "calm/tensor/matmul.hpp"
#include "calm/train/peak.hpp"

using calm::index_t;
using calm::throughput;

BOOST_AUTO_TEST_CASE(speed_and_time_left_follow_the_clock) {
    double now = 100;
    throughput speed([&] { return now; });
    BOOST_TEST(std::isnan(speed.tokens_per_second()));
    BOOST_TEST(speed.seconds_left(10, 60) == 60);
    BOOST_TEST(std::isinf(speed.seconds_left(10)));
    for (int i = 0; i < 4; ++i) {
        now += 2;
        speed.add(1000);
    }
    BOOST_TEST(speed.steps() == 4);
    BOOST_TEST(speed.elapsed() == 8);
    BOOST_TEST(speed.tokens_per_second() == 500);
    BOOST_TEST(speed.seconds_per_step() == 2);
    BOOST_TEST(speed.seconds_left(10) == 20);
    BOOST_TEST(speed.seconds_left(10, 20) == 12);  // by the clock
    BOOST_TEST(speed.seconds_left(10, 5) == 0);
    BOOST_TEST(speed.seconds_left(0) == 0);

    now += 1000;  // an evaluation
    speed.resume();
    now += 2;
    speed.add(1000);
    BOOST_TEST(speed.tokens_per_second() == 500);
    BOOST_TEST(speed.elapsed() == 1010);
}

BOOST_AUTO_TEST_CASE(only_the_last_steps_count) {
    double now = 0;
    throughput speed([&] { return now; });
    now += 1000;
    speed.add(1);
    for (std::size_t i = 0; i < throughput::window; ++i) {
        now += 1;
        speed.add(7);
    }
    BOOST_TEST(speed.tokens_per_second() == 7);
}

BOOST_AUTO_TEST_CASE(a_share_is_of_a_peak_or_none) {
    BOOST_TEST(calm::share_of_peak(50e9, 2, 100e9) == 0.25);
    BOOST_TEST(calm::share_of_peak(200e9, 2, 100e9) == 1);
    BOOST_TEST(std::isnan(calm::share_of_peak(201e9, 2, 100e9)));  // the machine was busy when it was measured
    BOOST_TEST(std::isnan(calm::share_of_peak(1e9, 2, 0)));        // not measured
    BOOST_TEST(std::isnan(calm::share_of_peak(1e9, std::numeric_limits<double>::quiet_NaN(), 1e9)));
}

// Not even a product of a good shape is faster, whatever else the machine does; and threads beyond those of the machine
// add nothing.
BOOST_AUTO_TEST_CASE(the_peak_is_above_what_a_product_reaches) {
    constexpr index_t size = 256;
    calm::context<> ctx(1, 1);
    auto const x = ctx.scratch.take<float>(calm::extents<calm::dyn, size>(size));
    auto const w = ctx.scratch.take<float>(calm::extents<calm::dyn, size>(size));
    auto const y = ctx.scratch.take<float>(calm::extents<calm::dyn, size>(size));
    std::fill_n(x.data(), x.size(), 1.0F);
    std::fill_n(w.data(), w.size(), 1.0F);
    double fastest = 1e9;
    double peak = 0;
    double reached = std::numeric_limits<double>::quiet_NaN();
    // A neighbour that slows a core down may do so for all of a measurement: either is the best of a few.
    for (int turn = 0; turn < 20 && !(reached > 0.02); ++turn) {
        for (int round = 0; round < 100; ++round) {
            double const begin = calm::steady_seconds();
            calm::matmul(ctx, y, x, calm::transposed(w));
            fastest = std::min(fastest, calm::steady_seconds() - begin);
        }
        peak = std::max(peak, calm::measure_peak(ctx));
        reached = calm::share_of_peak(2.0 * size * size * size, fastest, peak);
    }
    BOOST_TEST(reached > 0.02);  // NaN, where it were above the peak, is not
    BOOST_TEST(reached <= 1.0);
    int const all = calm::detail::threads_of_the_machine();
    double const of_all = calm::measure_peak(calm::context<>(1, all));
    double const of_more = calm::measure_peak(calm::context<>(1, 4 * all));
    BOOST_TEST(of_more < 1.9 * of_all);  // four times, were they counted
}
