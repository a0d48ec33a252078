#pragma once
// Tests of observed counts against expected distributions.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace calm::test {

// Probability that a chi-square variable with `freedom` degrees of freedom exceeds chi2.
inline double chi_square_tail(double chi2, int freedom) {
    double const half = chi2 / 2;
    double tail = freedom % 2 == 0 ? 0.0 : std::erfc(std::sqrt(half));
    for (double power = freedom % 2 == 0 ? 0.0 : 0.5; power < freedom / 2.0; power += 1.0)
        tail += std::exp(power * std::log(half) - half - std::lgamma(power + 1.0));
    return tail;
}

// p-value of observed counts; classes with fewer than 5 expected are pooled, impossible classes must be empty.
inline double p_value(std::vector<double> const& odds, std::vector<std::int64_t> const& seen) {
    double draws = 0;
    for (auto const n : seen) draws += static_cast<double>(n);
    double chi2 = 0;
    double rare = 0;
    double rare_seen = 0;
    int classes = 0;
    auto const add = [&](double expected, double found) {
        chi2 += (found - expected) * (found - expected) / expected;
        ++classes;
    };
    for (std::size_t i = 0; i < odds.size(); ++i) {
        auto const found = static_cast<double>(seen[i]);
        if (odds[i] == 0.0 && found > 0) return 0.0;
        if (odds[i] * draws >= 5) {
            add(odds[i] * draws, found);
        } else {
            rare += odds[i] * draws;
            rare_seen += found;
        }
    }
    if (rare > 0) add(rare, rare_seen);
    return classes < 2 ? 1.0 : chi_square_tail(chi2, classes - 1);
}

// Kolmogorov-Smirnov: the probability that n draws from the distribution function `cdf` deviate from it as far as x
// does. Asymptotic; accurate from a few hundred draws.
template <class Cdf> double smirnov_p_value(std::vector<double> x, Cdf const& cdf) {
    std::sort(x.begin(), x.end());
    auto const n = static_cast<double>(x.size());
    double distance = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        double const want = cdf(x[i]);
        distance = std::max({distance, static_cast<double>(i + 1) / n - want, want - static_cast<double>(i) / n});
    }
    double tail = 0;
    for (int k = 1; k <= 100; ++k) tail += (k % 2 == 1 ? 2 : -2) * std::exp(-2.0 * k * k * n * distance * distance);
    return std::clamp(tail, 0.0, 1.0);
}
inline double normal_cdf(double x) {
    return std::erfc(-x / std::sqrt(2.0)) / 2;
}

}  // namespace calm::test
