#include "calm/train/detail/throughput.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>

#include "calm/train/detail/peak.hpp"

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
    BOOST_TEST(speed.seconds_left(10, 20) == 12);  // limited by the clock
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
    BOOST_TEST(std::isnan(calm::share_of_peak(201e9, 2, 100e9)));  // the machine was busy during the measurement
    BOOST_TEST(std::isnan(calm::share_of_peak(1e9, 2, 0)));        // not measured
    BOOST_TEST(std::isnan(calm::share_of_peak(1e9, std::numeric_limits<double>::quiet_NaN(), 1e9)));
}

// A simulated clock makes this exact: the fastest round counts, and threads beyond the machine's cores add nothing.
BOOST_AUTO_TEST_CASE(the_peak_is_the_fastest_round_of_every_thread) {
    auto const peak_of = [](int threads, double fastest, double slowest) {
        thread_local double now;
        thread_local int asked;
        return calm::measure_peak(calm::context<>(1, threads), 64 * slowest,
                                  [=] { return now += asked++ % 8 == 5 ? fastest : slowest; });
    };
    double const one = peak_of(1, 0.25, 0.25);  // powers of two: no difference is rounded
    BOOST_TEST(one > 0);
    BOOST_TEST(std::fmod(one * 0.25, 2.0) == 0);  // whole multiply-adds per round
    BOOST_TEST(peak_of(1, 0.125, 0.125) == 2 * one);
    BOOST_TEST(peak_of(1, 0.125, 4) == 2 * one);  // another process took seven rounds of eight
    int const all = calm::detail::threads_of_the_machine();
    BOOST_TEST(peak_of(all, 0.25, 0.25) == all * one);
    BOOST_TEST(peak_of(4 * all, 0.25, 0.25) == all * one);
}
