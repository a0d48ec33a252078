#pragma once
// Tolerances for comparing a result with the expected values.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iomanip>
#include <limits>
#include <span>
#include <type_traits>

namespace calm::test {

// Element-wise |got - want| <= absolute + relative * |want|; the message names the worst element.
template <class Got, class Want>
boost::test_tools::assertion_result close_to(std::span<Got const> got, std::span<Want const> want, double absolute,
                                             double relative) {
    boost::test_tools::assertion_result result(true);
    if (got.size() != want.size()) {
        result = false;
        result.message() << "expected " << want.size() << " elements, found " << got.size();
        return result;
    }
    double worst = 0.0;
    std::size_t where = 0;
    std::size_t outside = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        auto const a = static_cast<double>(got[i]);
        auto const b = static_cast<double>(want[i]);
        double const ratio = a == b ? 0.0 : std::abs(a - b) / (absolute + relative * std::abs(b));
        double const excess = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
        if (excess > 1.0) ++outside;
        if (excess > worst) {
            worst = excess;
            where = i;
        }
    }
    if (outside > 0) {
        result = false;
        result.message() << std::setprecision(9) << "element " << where << " of " << got.size() << " is " << got[where]
                         << ", expected " << want[where] << ": " << worst << " times the bound; " << outside
                         << " lie outside it";
    }
    return result;
}

// The kind of an fp32 result that is compared with fixtures, with double or with another device.
enum class kind { output, gradient, loss_of_run, weight_of_run };

// fp32 tolerances. Outputs: 1e-5 + 1e-5 |want|. Gradients: 2e-6 max(1, largest element) + 1e-4 |want|.
// After a ten-step run: losses 1e-5 |want|, final weights 5e-5.
// Use: BOOST_TEST(close(got, f.floats("out/x"), kind::output)); containers or spans of float or double.
template <class Got, class Want>
boost::test_tools::assertion_result close(Got const& got, Want const& want, kind what) {
    using got_t = std::remove_cvref_t<decltype(*std::data(got))>;
    using want_t = std::remove_cvref_t<decltype(*std::data(want))>;
    std::span<got_t const> const a(std::data(got), std::size(got));
    std::span<want_t const> const b(std::data(want), std::size(want));
    if (what == kind::output) return close_to(a, b, 1e-5, 1e-5);
    if (what == kind::loss_of_run) return close_to(a, b, 0, 1e-5);
    if (what == kind::weight_of_run) return close_to(a, b, 5e-5, 0);
    double largest = 1.0;
    for (auto const value : b) largest = std::max(largest, std::abs(static_cast<double>(value)));
    return close_to(a, b, 2e-6 * largest, 1e-4);
}

}  // namespace calm::test
