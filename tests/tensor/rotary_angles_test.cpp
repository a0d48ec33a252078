// Frequencies against the formulas of transformers 5, computed with numpy in single precision.
#include "calm/tensor/ops/rotary_angles.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <utility>

using namespace calm;

namespace {

void check(rotary_angles const& angles, index_t head_size, index_t pair, double want) {
    BOOST_TEST(static_cast<double>(angles.frequency(pair, head_size)) == want, boost::test_tools::tolerance(5e-7));
}

}  // namespace

BOOST_AUTO_TEST_CASE(linear_scaling_divides_every_frequency) {
    rotary_angles const angles(10'000, {.type = rope_type::linear, .factor = 2.5});
    for (auto const& [pair, want] : {std::pair{0, 0.4}, {1, 0.04}, {2, 0.004}, {3, 0.0004}})
        check(angles, 8, pair, want);
}

// Llama 3.1. Pairs below 29 turn more than 4 times in 8192 positions, pairs above 35 less than once.
BOOST_AUTO_TEST_CASE(llama3_scaling_divides_low_frequencies) {
    rotary_angles const angles(500'000, {.type = rope_type::llama3, .factor = 8});
    for (auto const& [pair, want] : {std::pair{0, 1.0},
                                     {10, 0.12868738174438477},
                                     {25, 0.0059407297521829605},
                                     {28, 0.0032114461064338684},
                                     {30, 0.0013718936825171113},
                                     {31, 0.0008567514596506953},
                                     {32, 0.0005248460220173001},
                                     {40, 3.428102354519069e-05},
                                     {63, 3.068925877869333e-07}})
        check(angles, 128, pair, want);
}

BOOST_AUTO_TEST_CASE(a_base_without_a_type_does_not_scale) {
    for (index_t const pair : {0, 1, 2, 3}) {
        rotary_angles const plain(10'000), scaled(10'000, {.type = rope_type::unscaled, .factor = 8});
        BOOST_TEST(plain.frequency(pair, 8) == std::pow(10'000.0F, -static_cast<float>(2 * pair) / 8.0F));
        BOOST_TEST(scaled.frequency(pair, 8) == plain.frequency(pair, 8));
    }
}
