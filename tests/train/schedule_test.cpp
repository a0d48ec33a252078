#include "calm/train/schedule.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using calm::errc;
using calm::index_t;
using calm::schedule;

namespace {
auto const nearly = boost::test_tools::tolerance(1e-12);
}

BOOST_AUTO_TEST_CASE(the_rate_rises_by_equal_steps_and_stays) {
    auto const rate = schedule::constant(3e-3, 4);
    BOOST_TEST(rate(0) == 0.75e-3, nearly);
    BOOST_TEST(rate(1) == 1.5e-3, nearly);
    BOOST_TEST(rate(3) == 3e-3, nearly);
    BOOST_TEST(rate(4) == 3e-3, nearly);
    BOOST_TEST(rate(1'000'000) == 3e-3, nearly);
}

BOOST_AUTO_TEST_CASE(without_warm_up_the_first_step_has_the_peak) {
    BOOST_TEST(schedule::constant(1e-3, 0)(0) == 1e-3, nearly);
}

BOOST_AUTO_TEST_CASE(the_cosine_ends_at_the_floor) {
    auto const rate = schedule::cosine(1.0, 10, 110, 0.1);
    BOOST_TEST(rate(9) == 1.0, nearly);
    BOOST_TEST(rate(59) == 0.55, nearly);  // half way
    BOOST_TEST(rate(109) == 0.1, nearly);
    BOOST_TEST(rate(5000) == 0.1, nearly);
    for (index_t step = 10; step < 110; ++step) {
        BOOST_TEST(rate(step) < rate(step - 1));
        BOOST_TEST(rate(step) - 0.1 > -1e-12);
    }
    BOOST_TEST(schedule::cosine(1.0, 0, 8, 0)(7) < 1e-12);
    BOOST_TEST(schedule::cosine(2.0, 0, 1)(0) == 0.2, nearly);
}

BOOST_AUTO_TEST_CASE(a_cosine_of_time_follows_the_progress) {
    auto const rate = schedule::cosine_of_time(1.0, 10, 0.1);
    BOOST_TEST(rate(100, 0) == 1.0, nearly);
    BOOST_TEST(rate(100, 0.5) == 0.55, nearly);
    BOOST_TEST(rate(100, 1) == 0.1, nearly);
    BOOST_TEST(rate(7, 0.5) == 0.55 * rate(7, 0), nearly);  // the step's part of the warm-up
    BOOST_TEST(rate(4, 0) == 0.5, nearly);
    BOOST_TEST(schedule::cosine(1.0, 10, 110)(59, 0.9) == schedule::cosine(1.0, 10, 110)(59));
    BOOST_TEST(schedule::constant(1.0, 10)(59, 0.9) == 1.0);
}

BOOST_AUTO_TEST_CASE(both_have_the_same_warm_up) {
    auto const a = schedule::constant(1e-3, 100);
    auto const b = schedule::cosine(1e-3, 100, 1000);
    for (index_t step = 0; step < 100; ++step) BOOST_TEST(a(step) == b(step));
}

BOOST_AUTO_TEST_CASE(invalid_settings_are_refused) {
    auto const sentence = [](auto make) { return calm::test::sentence_of<calm::error>(make); };
    BOOST_TEST(sentence([] { schedule::constant(0, 4); }).find("expected a learning rate above 0") !=
               std::string::npos);
    BOOST_TEST(!sentence([] { schedule::constant(std::numeric_limits<double>::infinity(), 4); }).empty());
    BOOST_TEST(!sentence([] { schedule::constant(1e-3, -1); }).empty());
    BOOST_TEST(sentence([] { schedule::cosine(1e-3, 10, 10); }) ==
               "calm::schedule: expected more steps in total than the 10 of warm-up, found 10");
    BOOST_TEST(!sentence([] { schedule::cosine(1e-3, 10, 100, 1.5); }).empty());
    BOOST_TEST(!sentence([] { schedule::cosine_of_time(1e-3, 10, 1.5); }).empty());
}
