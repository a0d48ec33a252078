#include "calm/loss/variational.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
constexpr index_t L = 5;
constexpr double clamp = 0.5;
template <class Backend = cpu> auto seen(auto& v) {
    return out_rows<Backend, L>(v);
}
}  // namespace

// One patch with a latent of two dimensions: the first carries information, the second is close to N(0, 1).
BOOST_AUTO_TEST_CASE(only_a_dimension_above_the_clamp_has_a_gradient) {
    context<> ctx;
    tensor<double, extents<dyn, 2>> mean(extents<dyn, 2>(1)), log_std(extents<dyn, 2>(1));
    tensor<double, extents<dyn, 2>> dmean(extents<dyn, 2>(1)), dlog_std(extents<dyn, 2>(1));
    mean[0] = 3, log_std[0] = std::log(2);
    mean[1] = 0.1, log_std[1] = 0;
    auto const within = boost::test_tools::tolerance(1e-12);

    double const first = 0.5 * (3 * 3 + 2 * 2 - 1) - std::log(2), second = 0.5 * 0.1 * 0.1;  // in nats
    BOOST_TEST(clamped_kl_sum(ctx, mean.view(), log_std.view(), 0) == first + second, within);
    BOOST_TEST(clamped_kl_sum(ctx, mean.view(), log_std.view(), 0.5) == first + 0.5, within);

    double const weight = 0.001;  // of the variational term in the autoencoder's loss
    add_clamped_kl_gradient(ctx, mean.view(), log_std.view(), dmean.view(), dlog_std.view(), 0.5, weight);
    BOOST_TEST(dmean[0] == weight * 3, within);
    BOOST_TEST(dlog_std[0] == weight * (2 * 2 - 1), within);
    BOOST_TEST((dmean[1] == 0 && dlog_std[1] == 0));
}

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (index_t const R : {0, 1, 70}) {
        context<> ctx(1, 2);
        auto mean = draws<double>(R * L, 1);
        auto log_std = draws<double>(R * L, 2);
        std::vector<double> dmean(mean.size(), 1.0), dlog_std(mean.size(), 1.0);
        constexpr double scale = 0.7;
        add_clamped_kl_gradient(ctx, seen(mean), seen(log_std), seen(dmean), seen(dlog_std), clamp, scale);
        for (auto* const d : {&dmean, &dlog_std})
            for (double& g : *d) g -= 1;  // the previous value
        std::vector<complex> cm(mean.begin(), mean.end()), cl(log_std.begin(), log_std.end());
        auto const f = [&] { return scale * clamped_kl_sum(ctx, seen(cm), seen(cl), clamp); };
        check_by_differences(
            "mean", dmean.data(), R * L, [&](index_t i) { return complex_slope(cm[static_cast<std::size_t>(i)], f); },
            40);
        check_by_differences(
            "log_std", dlog_std.data(), R * L,
            [&](index_t i) { return complex_slope(cl[static_cast<std::size_t>(i)], f); }, 40);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(every_dimension_is_clamped_from_below, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 1);
    constexpr double bound = rounding<T>;
    numbers<T, backend> mean(2 * L), log_std(2 * L);
    BOOST_TEST(near(clamped_kl_sum(ctx, seen<backend>(mean), seen<backend>(log_std), clamp), 2 * L * clamp,
                    bound));  // everything is clamped
    BOOST_TEST(near(clamped_kl_sum(ctx, seen<backend>(mean), seen<backend>(log_std), 0), 0, bound));
    mean[3] = 4;
    log_std[6] = -3;
    double const one = 0.5 * 16;
    double const other = 0.5 * (std::exp(-6.0) - 1 + 6);
    BOOST_TEST(near(clamped_kl_sum(ctx, seen<backend>(mean), seen<backend>(log_std), clamp),
                    (2 * L - 2) * clamp + one + other, bound));

    // Clamped elements get no gradient.
    numbers<T, backend> dmean(2 * L), dlog_std(2 * L);
    add_clamped_kl_gradient(ctx, seen<backend>(mean), seen<backend>(log_std), seen<backend>(dmean),
                            seen<backend>(dlog_std), clamp, 1);
    for (std::size_t i = 0; i < mean.size(); ++i) {
        BOOST_TEST(near(static_cast<double>(dmean[i]), i == 3 ? 4 : 0, bound));
        BOOST_TEST(near(static_cast<double>(dlog_std[i]), i == 6 ? std::exp(-6.0) - 1 : 0, bound));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(devices_agree, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    using enum thread_order;
    for (index_t const R : {0, 1, 3, 51, 1700}) {
        auto const mean = draws<double>(R * L, 1);
        auto const log_std = draws<double>(R * L, 2);
        auto const run = [&]<class Backend, class U>(context<Backend>& ctx, U) {
            numbers<U, Backend> m(mean.begin(), mean.end()), s(log_std.begin(), log_std.end());
            numbers<U, Backend> dm(m.size(), U(1)), ds(m.size(), U(1));
            auto const kl = clamped_kl_sum(ctx, seen<Backend>(m), seen<Backend>(s), clamp);
            add_clamped_kl_gradient(ctx, seen<Backend>(m), seen<Backend>(s), seen<Backend>(dm), seen<Backend>(ds),
                                    clamp, 0.7);
            return std::tuple(kl, copied(dm), copied(ds));
        };
        context<> reference(1, 2);
        auto const want = run(reference, double{});
        context<backend> ctx(1, 1);
        auto const got = run(ctx, T{});
        BOOST_TEST(near(std::get<0>(got), std::get<0>(want), 1e-5));
        BOOST_TEST(close(std::get<1>(got), std::get<1>(want), kind::gradient));
        BOOST_TEST(close(std::get<2>(got), std::get<2>(want), kind::gradient));
        for (auto const& [threads, order] : {std::pair(2, descending), {3, permuted}}) {
            context<backend> other(1, threads);
            other.order = order;
            BOOST_TEST((run(other, T{}) == got));
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_is_not_clamped_away, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 1);
    numbers<T, backend> mean(4 * L), log_std(4 * L);
    mean[7] = std::numeric_limits<T>::quiet_NaN();
    BOOST_TEST(std::isnan(clamped_kl_sum(ctx, seen<backend>(mean), seen<backend>(log_std), clamp)));
}
