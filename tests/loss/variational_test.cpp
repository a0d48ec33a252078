#include "calm/loss/variational.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
constexpr index_t L = 5;
constexpr double clamp = 0.5;
template <class T> matrix_view<T, L> seen(std::vector<T>& v) {
    return {v.data(), extents<dyn, L>(static_cast<index_t>(v.size()) / L)};
}
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (index_t const R : {0, 1, 70}) {
        context<> ctx(1, 2);
        auto mean = draws<double>(R * L, 1);
        auto log_std = draws<double>(R * L, 2);
        std::vector<double> dmean(mean.size(), 1.0), dlog_std(mean.size(), 1.0);
        constexpr double scale = 0.7;
        add_clamped_kl_gradient(ctx, seen(mean), seen(log_std), seen(dmean), seen(dlog_std), clamp, scale);
        for (auto* const d : {&dmean, &dlog_std})
            for (double& g : *d) g -= 1;  // what was there before
        std::vector<complex> cm(mean.begin(), mean.end()), cl(log_std.begin(), log_std.end());
        auto const f = [&] { return scale * clamped_kl_sum(ctx, seen(cm), seen(cl), clamp); };
        check_slopes(
            "mean", dmean.data(), R * L, [&](index_t i) { return complex_slope(cm[static_cast<std::size_t>(i)], f); },
            40);
        check_slopes(
            "log_std", dlog_std.data(), R * L,
            [&](index_t i) { return complex_slope(cl[static_cast<std::size_t>(i)], f); }, 40);
    }
}

BOOST_AUTO_TEST_CASE(every_dimension_is_clamped_from_below) {
    context<> ctx(1, 1);
    std::vector<double> mean(2 * L, 0.0), log_std(2 * L, 0.0);
    BOOST_TEST(near(clamped_kl_sum(ctx, seen(mean), seen(log_std), clamp), 2 * L * clamp, 1e-15));  // nothing diverges
    BOOST_TEST(near(clamped_kl_sum(ctx, seen(mean), seen(log_std), 0), 0, 1e-15));
    mean[3] = 4;
    log_std[6] = -3;
    double const one = 0.5 * 16;
    double const other = 0.5 * (std::exp(-6.0) - 1 + 6);
    BOOST_TEST(near(clamped_kl_sum(ctx, seen(mean), seen(log_std), clamp), (2 * L - 2) * clamp + one + other, 1e-14));

    // What is close already is left alone.
    std::vector<double> dmean(2 * L), dlog_std(2 * L);
    add_clamped_kl_gradient(ctx, seen(mean), seen(log_std), seen(dmean), seen(dlog_std), clamp, 1);
    for (std::size_t i = 0; i < mean.size(); ++i) {
        BOOST_TEST(near(dmean[i], i == 3 ? 4 : 0, 1e-14));
        BOOST_TEST(near(dlog_std[i], i == 6 ? std::exp(-6.0) - 1 : 0, 1e-14));
    }
}

BOOST_AUTO_TEST_CASE(nan_is_not_clamped_away) {
    context<> ctx(1, 1);
    std::vector<float> mean(4 * L, 0.0F), log_std(4 * L, 0.0F);
    mean[7] = std::numeric_limits<float>::quiet_NaN();
    BOOST_TEST(std::isnan(clamped_kl_sum(ctx, seen(mean), seen(log_std), clamp)));
}
