#pragma once
// Values that ranks add up, and their sum in the order of the rank tree.

#include <cstddef>

#include "calm/tensor/core/extents.hpp"

namespace calm::test {

// Rank r's value of element j of parameter i; sums of these values are inexact, so the order matters.
inline float term(int r, std::size_t i, index_t j) {
    return 1.0F / static_cast<float>(2 + r + static_cast<int>(i) * 3 + static_cast<int>(j % 997));
}
// The tree sum over n ranks starting at `first`.
inline float tree_sum(int first, int n, std::size_t i, index_t j) {
    if (n == 1) return term(first, i, j);
    int half = 1;
    while (2 * half < n) half *= 2;
    return tree_sum(first, half, i, j) + tree_sum(first + half, n - half, i, j);
}

}  // namespace calm::test
