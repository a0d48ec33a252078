#include "calm/nn/norm.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T> using rms = rms_norm_layer<19, space<cpu, T>>;
template <class T> using layered = layer_norm_layer<19, space<cpu, T>>;
template <class T> using bare = layer_norm_no_affine<19, space<cpu, T>>;
template <class T> using wide_rms = rms_norm_layer<130, space<cpu, T>>;
template <class T> using wide_layered = layer_norm_layer<130, space<cpu, T>>;
template <class T, class B> using rms_on = rms_norm_layer<19, space<B, T>>;
template <class T, class B> using wide_rms_on = rms_norm_layer<130, space<B, T>>;
template <class T, class B> using layered_on = layer_norm_layer<19, space<B, T>>;
template <class T, class B> using bare_on = layer_norm_no_affine<19, space<B, T>>;
template <class T, class B> using wide_layered_on = layer_norm_layer<130, space<B, T>>;
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (index_t const rows : {0, 1, 3, 70}) check_layer<rms>(rows);
    for (index_t const rows : {0, 1, 3, 70}) check_layer<layered>(rows);
    for (index_t const rows : {0, 1, 3, 70}) check_layer<bare>(rows);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_device, on, test_devices) {
    for (index_t const rows : {0, 1, 3, 70}) {
        check_device<on, rms_on>(rows);
        check_device<on, layered_on>(rows);
        check_device<on, bare_on>(rows);
    }
    check_device<on, wide_rms_on>(600);  // more than one chunk of rows
    check_device<on, wide_layered_on>(600);
}

BOOST_AUTO_TEST_CASE(laws) {
    check_layer_laws<wide_rms>(200);
    check_layer_laws<wide_layered>(200);
    check_rows_alone<wide_rms>(70);
    check_rows_alone<wide_layered>(70);
}

// The operation on the cpu, and the row kernel as portable block code.
BOOST_AUTO_TEST_CASE_TEMPLATE(the_root_mean_square_of_a_row, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    for (index_t const d : {1, 3, 17, 255, 1031})
        for (index_t const n : {0, 1, 65}) {
            typename on::template tensor<extents<dyn, dyn>> x{extents<dyn, dyn>(n, d)}, y{extents<dyn, dyn>(n, d)};
            typename on::vector w{extents<dyn>(d)}, r{extents<dyn>(n)};
            draw(x, 1, 2, 1);
            draw(w, 2);
            typename on::context ctx(1, 2);
            rms_norm(ctx, y, r, x, w, 1e-6);
            double worst = 0;
            for (index_t i = 0; i < n; ++i) {
                double mean = 0;
                for (index_t j = 0; j < d; ++j)
                    mean += std::pow(static_cast<double>(x[i * d + j]), 2) / static_cast<double>(d);
                double const want = 1 / std::sqrt(mean + 1e-6);
                worst = std::max(worst, std::abs(static_cast<double>(r[i]) / want - 1));
                for (index_t j = 0; j < d; ++j)
                    worst =
                        std::max(worst, std::abs(static_cast<double>(y[i * d + j]) -
                                                 static_cast<double>(x[i * d + j]) * want * static_cast<double>(w[j])));
            }
            BOOST_TEST(worst <= rounding<T>, d << " wide, " << n << " rows: " << worst);
        }
    static_assert(std::is_same_v<backend, typename decltype(
                                              typename on::context{}.saved.template take<T>(extents<1>()))::backend>);
}

// x = (3, 4) has mean square 12.5; with eps 3.5 the root is 4.
BOOST_AUTO_TEST_CASE(a_layer_adds_its_own_eps) {
    prepared<rms_norm_layer<2, space<cpu, double>, result_as::numbers, norm_eps{3.5}>, double> p;
    std::fill_n(p.params[0].value, 2, 1.0);
    std::vector<double> const x{3, 4};
    auto const y = p.model.forward(p.ctx, matrix_view<double const, 2>(x.data(), extents<dyn, 2>(1))).y;
    BOOST_TEST(y[0] == 0.75);
    BOOST_TEST(y[1] == 1.0);
}

BOOST_AUTO_TEST_CASE(normalised_rows) {
    constexpr index_t D = 130;
    prepared<wide_layered<double>, double> p;
    std::fill_n(p.params[0].value, D, 1.0);
    std::fill_n(p.params[1].value, D, 0.0);
    auto const x = draws<double>(5 * D, 1, 100, 1000);
    auto const y = p.model.forward(p.ctx, matrix_view<double const, D>(x.data(), extents<dyn, D>(5))).y;
    for (index_t r = 0; r < 5; ++r) {
        double mean = 0;
        double square = 0;
        for (index_t i = 0; i < D; ++i) mean += y[r * D + i] / D, square += y[r * D + i] * y[r * D + i] / D;
        BOOST_TEST(std::abs(mean) < 1e-12);
        BOOST_TEST(near(square, 1, 1e-6));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(zero_rows_stay_finite_and_nan_stays_in_its_row, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    constexpr index_t D = 19;
    for (bool const poisoned : {false, true}) {
        prepared<rms_on<T, backend>, T, backend> p;
        prepared<layered_on<T, backend>, T, backend> q;
        numbers<T, backend> x(3 * D);
        if (poisoned) x[D + 4] = std::numeric_limits<T>::quiet_NaN();
        auto const in = in_rows<backend, D>(x);
        for (auto const& y : {p.model.forward(p.ctx, in).y, q.model.forward(q.ctx, in).y})
            for (index_t i = 0; i < 3 * D; ++i) BOOST_TEST(std::isnan(opened(y)[i]) == (poisoned && i / D == 1));
    }
}

// Without gain and bias: rows of mean 0 and variance 1, and no parameters.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_bare_norm_centres_and_scales, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    layer_norm_no_affine<19, space<backend, T>> norm;
    BOOST_TEST(parameters<T>(norm).empty());
    typename on::context ctx(1, 2);
    auto const x = draws<T, backend>(3 * 19, 1, 5, 100);
    auto const y = copied(norm.forward(ctx, in_rows<backend, 19>(x)).y);
    BOOST_TEST(ctx.workspace.used() == 0U);
    for (std::size_t r = 0; r < 3; ++r) {
        double mean = 0, square = 0;
        for (std::size_t i = r * 19; i < (r + 1) * 19; ++i) {
            mean += static_cast<double>(y[i]) / 19;
            square += static_cast<double>(y[i]) * static_cast<double>(y[i]) / 19;
        }
        BOOST_TEST(std::abs(mean) < 1e-5);
        BOOST_TEST(std::abs(square - 1) < 1e-5);
    }
}
