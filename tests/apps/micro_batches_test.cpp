// The number of micro-batches per step on a device.
#include "run/run_plan.hpp"

#include <vector>

#include "support/typed.hpp"

using namespace calm;

// A run takes 10 bytes, plus 100 divided by the number of micro-batches.
BOOST_AUTO_TEST_CASE(as_few_micro_batches_as_fit_in_memory) {
    std::vector<index_t> asked;
    auto const bytes = [&](index_t count) {
        asked.push_back(count);
        return static_cast<std::size_t>(10 + 100 / count);
    };
    // 60 fits the limit of 90; one micro-batch takes 110
    BOOST_TEST(apps::fewest_micro_batches(16, 1, 100, bytes) == 2);
    BOOST_TEST(asked == std::vector<index_t>({8, 4, 2, 1}), boost::test_tools::per_element());
    BOOST_TEST(apps::fewest_micro_batches(16, 1, 1000, bytes) == 1);
    BOOST_TEST(apps::fewest_micro_batches(16, 1, 10, bytes) == 16);
    BOOST_TEST(apps::fewest_micro_batches(12, 1, 1000, bytes) == 3);  // halving 12 ends at 3
    BOOST_TEST(apps::fewest_micro_batches(12, 2, 1000, bytes) == 6);  // two ranks share them evenly
    BOOST_TEST(apps::fewest_micro_batches(1, 1, 1000, bytes) == 1);
}
