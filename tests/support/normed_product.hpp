#pragma once
// Elements of matrix products in double, optionally with normalised rows, and the error bound for the same sums in T.

#include <cmath>
#include <limits>
#include <vector>

#include "calm/tensor/core/extents.hpp"

namespace calm::test {

// Rows x (M, K), optionally RMS-normalised with a gain (K), times a table (N, K) transposed.
template <class T> struct normed_product {
    std::vector<T> x, table, gain;
    index_t k;
    double eps;

    struct element {
        double value;
        double terms;  // sum of the magnitudes of all terms
    };
    [[nodiscard]] element at(index_t row, index_t column) const {
        double squares = 0, value = 0, terms = 0;
        for (index_t l = 0; l < k; ++l) {
            double const xl = of(x, row * k + l);
            double const term = xl * of(table, column * k + l) * (gain.empty() ? 1 : of(gain, l));
            squares += xl * xl, value += term, terms += std::abs(term);
        }
        double const r = gain.empty() ? 1 : 1 / std::sqrt(squares / static_cast<double>(k) + eps);
        return {value * r, terms * r};
    }
    // Relative to the sum of magnitudes: each of 32 lanes adds K / 32 terms and as many squares in sequence; the sum
    // over lanes and all other roundings are fewer than 16 more.
    [[nodiscard]] double bound() const {
        return (static_cast<double>(k) / 32 + 16) * static_cast<double>(std::numeric_limits<T>::epsilon());
    }

private:
    static double of(std::vector<T> const& all, index_t i) {
        return static_cast<double>(all[static_cast<std::size_t>(i)]);
    }
};

}  // namespace calm::test
