#include "calm/nn/dropout.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T> using dropped = dropout<7, space<cpu, T>>;
template <class T, class B> using dropped_on = dropout<7, space<B, T>>;
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    check_layer<dropped>(6, {.rate = 0.4, .number = 0}, {.rate = 0.4, .number = 0},
                         42);  // one step always draws one mask
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_device, on, test_devices) {
    for (index_t const rows : {0, 1, 5, 300})
        check_device<on, dropped_on>(rows, {.rate = 0.4, .number = 0}, {.rate = 0.4, .number = 0});
    check_device<on, dropped_on>(5, {.rate = 0.4, .number = 0, .training = false},
                                 {.rate = 0.4, .number = 0, .training = false});
}

BOOST_AUTO_TEST_CASE(kept_numbers_are_scaled_and_the_rest_is_zero) {
    constexpr index_t R = 1000;
    constexpr double rate = 0.25;
    auto const x = draws<double>(R * 7, 1);
    std::vector<std::vector<double>> all;
    for (int threads : {1, 2, 3}) {
        context<> ctx(5, threads);
        dropout<7, space<cpu, double>> const layer{.rate = rate, .number = 0};
        auto const s = layer.forward(ctx, matrix_view<double const, 7>(x.data(), extents<dyn, 7>(R)));
        all.push_back(copied(s.y));
    }
    BOOST_CHECK((all[0] == all[1] && all[0] == all[2]));
    double kept = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        BOOST_TEST((all[0][i] == 0 || near(all[0][i], x[i] / (1 - rate), 1e-15)));
        kept += all[0][i] != 0 ? 1 : 0;
    }
    BOOST_TEST(std::abs(kept / (R * 7) - (1 - rate)) < 5 * std::sqrt(rate * (1 - rate) / (R * 7)));
}

BOOST_AUTO_TEST_CASE(another_step_draws_another_mask_and_without_training_there_is_none) {
    auto const x = draws<float>(70, 1);
    matrix_view<float const, 7> const in(x.data(), extents<dyn, 7>(10));
    context<> ctx(5, 1);
    dropout<7> layer{.rate = 0.5, .number = 0};
    auto const first = copied(layer.forward(ctx, in).y);
    ctx.step = 1;
    BOOST_CHECK((copied(layer.forward(ctx, in).y) != first));
    layer.training = false;
    BOOST_CHECK((copied(layer.forward(ctx, in).y) == x));
}

// Two keys agree on an element as often as independent draws do.
BOOST_AUTO_TEST_CASE(layers_of_one_width_have_masks_of_their_own) {
    constexpr index_t R = 1000;
    constexpr double rate = 0.3;
    std::vector<float> const x(R * 7, 1.0F);
    matrix_view<float const, 7> const in(x.data(), extents<dyn, 7>(R));
    context<> ctx(5, 1);
    std::vector<std::vector<float>> all;
    for (index_t const number : {0, 1, 2, 0}) all.push_back(copied(dropout<7>{rate, number}.forward(ctx, in).y));
    BOOST_CHECK((all[0] == all[3]));
    double const chance = rate * rate + (1 - rate) * (1 - rate);
    for (auto const& [a, b] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}}) {
        double equal = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
            equal += all[static_cast<std::size_t>(a)][i] == all[static_cast<std::size_t>(b)][i] ? 1 : 0;
        BOOST_TEST(std::abs(equal / (R * 7) - chance) < 5 * std::sqrt(chance * (1 - chance) / (R * 7)));
    }
}

BOOST_AUTO_TEST_CASE(micro_batches_go_on_with_the_mask_of_the_batch) {
    auto const x = draws<float>(12 * 7, 1);
    dropout<7> const layer{.rate = 0.5, .number = 3};
    auto const in_parts = [&](index_t parts) {
        context<> ctx(5, 1);
        std::vector<float> all;
        index_t const rows = 12 / parts;
        for (; ctx.micro_batch < parts; ++ctx.micro_batch) {
            matrix_view<float const, 7> const in(x.data() + ctx.micro_batch * rows * 7, extents<dyn, 7>(rows));
            for (float const y : copied(layer.forward(ctx, in).y)) all.push_back(y);
        }
        return all;
    };
    auto const whole = in_parts(1);
    for (index_t const parts : {2, 3, 12}) BOOST_CHECK((in_parts(parts) == whole));
}

BOOST_AUTO_TEST_CASE(numbers_and_batches_that_cannot_be) {
    float const x[7] = {};
    matrix_view<float const, 7> const in(x, extents<dyn, 7>(1));
    context<> ctx(5, 1);
    for (index_t const number : {index_t{-1}, index_t{1} << 24})
        BOOST_CHECK_EXCEPTION((dropout<7>{0.5, number}.forward(ctx, in)), error,
                              says(errc::usage, "expected a number from 0 to 16777215", "set .number"));
    dropout<7>{0.5, (1 << 24) - 1}.forward(ctx, in);
    dropout<7>{}.forward(ctx, in);  // at rate 0 nothing is drawn
    ctx.micro_batch = index_t{1} << 38;
    BOOST_CHECK_EXCEPTION((dropout<7>{0.5, 0}.forward(ctx, in)), error, says(errc::usage, "at most 2^40 elements"));
}

BOOST_AUTO_TEST_CASE(rates_that_cannot_be) {
    context<> ctx(5, 1);
    for (double const rate : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
        BOOST_CHECK_EXCEPTION((dropout<7>{.rate = rate}.forward(ctx, {})), error,
                              says(errc::usage, "calm::dropout: expected a rate in [0, 1), found"));
}
