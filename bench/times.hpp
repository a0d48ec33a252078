#pragma once
// Timing and statistics of timings.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace bench {

inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Statistics of a quantity that was measured at least once.
struct spread {
    double median, lowest, highest;
};
inline spread spread_of(std::vector<double> measured) {
    std::sort(measured.begin(), measured.end());
    std::size_t const middle = measured.size() / 2;
    double const median = measured.size() % 2 == 1 ? measured[middle] : (measured[middle - 1] + measured[middle]) / 2;
    return {median, measured.front(), measured.back()};
}

}  // namespace bench
