#include "calm/nn/dropout.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T> using dropped = dropout<7, T>;
template <class T, class B> using dropped_on = dropout<7, T, B>;
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    check_layer<dropped>(6, {.rate = 0.4}, {.rate = 0.4}, 42);  // the same step draws the same mask
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_executor, on, executors) {
    for (index_t const rows : {0, 1, 5, 300}) check_executor<on, dropped_on>(rows, {.rate = 0.4}, {.rate = 0.4});
    check_executor<on, dropped_on>(5, {.rate = 0.4, .training = false}, {.rate = 0.4, .training = false});
}

BOOST_AUTO_TEST_CASE(kept_numbers_are_scaled_and_the_rest_is_zero) {
    constexpr index_t R = 1000;
    constexpr double rate = 0.25;
    auto const x = draws<double>(R * 7, 1);
    std::vector<std::vector<double>> all;
    for (int threads : {1, 2, 3}) {
        context<> ctx(5, threads);
        dropout<7, double> const layer{.rate = rate};
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
    dropout<7> layer{.rate = 0.5};
    auto const first = copied(layer.forward(ctx, in).y);
    ctx.step = 1;
    BOOST_CHECK((copied(layer.forward(ctx, in).y) != first));
    layer.training = false;
    BOOST_CHECK((copied(layer.forward(ctx, in).y) == x));
}

BOOST_AUTO_TEST_CASE(rates_that_cannot_be) {
    context<> ctx(5, 1);
    for (double const rate : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
        BOOST_CHECK_EXCEPTION((dropout<7>{.rate = rate}.forward(ctx, {})), error,
                              says(errc::usage, "calm::dropout: expected a rate in [0, 1), found"));
}
