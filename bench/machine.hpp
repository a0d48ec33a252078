#pragma once
// Times.

#include <algorithm>
#include <chrono>

namespace bench {

inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the fastest of some calls of f that together take about `seconds`, at least three.
template <class F> double fastest(double seconds, F const& f) {
    double best = 1e30;
    double const start = now();
    for (int round = 0; round < 3 || now() - start < seconds; ++round) {
        double const begin = now();
        f();
        best = std::min(best, now() - begin);
    }
    return best;
}

}  // namespace bench
