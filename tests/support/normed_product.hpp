#pragma once
// Elements of products of rows, which may be normalised first, in double, and what so many terms in T may be apart from
// them.

#include <cmath>
#include <limits>
#include <vector>

#include "calm/tensor/extents.hpp"

namespace calm::test {

// Rows x (M, K) times the columns of a table (N, K), which the gain (K) of a norm, if there is one, belongs to.
template <class T> struct normed_product {
    std::vector<T> x, table, gain;
    index_t k;
    double eps;

    struct element {
        double value;
        double terms;  // of the magnitudes of all terms
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
    // Relative to the terms: a lane of 32 adds them up, and as many squares, one after another; lanes and what else is
    // rounded are fewer than 16 more.
    [[nodiscard]] double bound() const {
        return (static_cast<double>(k) / 32 + 16) * static_cast<double>(std::numeric_limits<T>::epsilon());
    }

private:
    static double of(std::vector<T> const& all, index_t i) {
        return static_cast<double>(all[static_cast<std::size_t>(i)]);
    }
};

}  // namespace calm::test
