#include "calm/train/throughput.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>

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
