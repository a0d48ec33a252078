#include "serve/request_rate.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using calm::apps::request_rate;

BOOST_AUTO_TEST_CASE(an_address_has_a_burst_and_then_its_rate) {
    request_rate rate(2);
    for (int i = 0; i < 4; ++i) BOOST_TEST(rate.allows("a", 10));
    BOOST_TEST(!rate.allows("a", 10));
    BOOST_TEST(rate.allows("b", 10));
    BOOST_TEST(rate.allows("a", 10.5));
    BOOST_TEST(!rate.allows("a", 10.5));
    BOOST_TEST(rate.allows("a", 100));
    BOOST_TEST(request_rate(0).allows("a", 0));
}

BOOST_AUTO_TEST_CASE(many_addresses_take_bounded_memory) {
    request_rate rate(1);
    for (std::size_t i = 0; i < request_rate::most_addresses; ++i) BOOST_REQUIRE(rate.allows(std::to_string(i), 0));
    BOOST_TEST(!rate.allows("one more", 0));
    BOOST_TEST(rate.allows("5", 0));
    BOOST_TEST(rate.allows("one more", 5));  // the others have their whole burst again
}
