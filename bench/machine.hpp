#pragma once
// What the machine can do at most, measured: the denominator of every share.

#include <algorithm>
#include <chrono>
#include <vector>

#include "calm/tensor/context.hpp"
#include "calm/tensor/packet.hpp"

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

// fp32 FLOP/s of multiply-adds on registers, all threads of the context together.
inline double peak_flops(calm::context<calm::cpu> const& ctx, double seconds = 0.2) {
    using V = calm::packet<float>;
    constexpr std::size_t chains = 12 * calm::detail::native_bytes / 64;  // hide the latency, and fit the registers
    constexpr int rounds = 1 << 20;
    std::vector<float> results(static_cast<std::size_t>(ctx.threads()));
    double const best = fastest(seconds, [&] {
        ctx.parallel(ctx.threads(), [&](calm::index_t task) {
            V sums[chains];
            for (std::size_t c = 0; c < chains; ++c) sums[c] = calm::splat<V>(static_cast<float>(c));
            V const factor = calm::splat<V>(0.999F);
            V const term = calm::splat<V>(0.001F);
            for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12
                for (std::size_t c = 0; c < chains; ++c) sums[c] = sums[c] * factor + term;
            float total = 0;
            for (V const& s : sums) total += calm::sum(s);
            results[static_cast<std::size_t>(task)] = total;
        });
    });
    volatile float kept = results[0];  // or the compiler would leave the work out
    (void)kept;
    return 2.0 * rounds * static_cast<double>(chains) * calm::lanes<V> * ctx.threads() / best;
}

}  // namespace bench
