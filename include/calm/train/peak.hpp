#pragma once
// How fast the machine adds products, measured: the denominator of every share. How many operations a step asks of it
// stands in model/flops.hpp.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "calm/tensor/context.hpp"
#include "calm/tensor/packet_sums.hpp"
#include "calm/train/throughput.hpp"

namespace calm {

#ifndef __CUDACC__  // nvcc 13.0 crashes on arithmetic with vectors of 64 bytes

// fp32 FLOP/s of multiply-adds on registers, the threads of the context together, no more of them than the machine has:
// no kernel is faster. Every thread by its fastest round, so that threads do not wait for each other; each goes on for
// at least `seconds`, and as long as it still rises, at most ten times as long: on a busy machine few rounds are
// undisturbed. The clock, in seconds, is an argument; all threads ask it.
inline double measure_peak(context<cpu> const& ctx, double seconds = 0.05,
                           std::function<double()> const& clock = steady_seconds) {
    using V = detail::vectors_of<float>::native;
    constexpr int chains = 12;  // hide the latency, and fit the registers
    constexpr int turns = 1 << 14;
    constexpr index_t lanes = sizeof(V) / sizeof(float);
    std::vector<float> kept(static_cast<std::size_t>(ctx.threads()));
    auto const round = [&](index_t task) {
        V sums[chains];
        for (int c = 0; c < chains; ++c) sums[c] = V{} + static_cast<float>(c);
        V const factor = V{} + 0.999F;
        V const term = V{} + 0.001F;
        for (int turn = 0; turn < turns; ++turn)
            detail::unrolled<chains>([&](auto c) __attribute__((always_inline)) { sums[c] = sums[c] * factor + term; });
        float total = 0;
        for (V const& sum : sums)
            for (index_t l = 0; l < lanes; ++l) total += sum[l];
        kept[static_cast<std::size_t>(task)] += total;  // or the compiler would leave the work out
    };
    std::vector<double> best(kept.size());  // rounds a second
    ctx.parallel(ctx.threads(), [&](index_t task) {
        auto& fastest = best[static_cast<std::size_t>(task)];
        double const start = clock();
        double rose = start;
        for (double now = start; now - start < seconds || (now - rose < seconds && now - start < 10 * seconds);) {
            double const begin = now;
            round(task);
            now = clock();
            if (1 / (now - begin) > 1.01 * fastest) rose = now;
            fastest = std::max(fastest, 1 / (now - begin));
        }
    });
    double const rounds = std::accumulate(best.begin(), best.end(), 0.0);
    double const at_once = std::min<double>(ctx.threads(), detail::threads_of_the_machine()) / ctx.threads();
    volatile float const used = kept[0];
    static_cast<void>(used);
    return rounds * at_once * 2.0 * turns * chains * lanes;
}

#endif

// Of a device it is not measured: 0, which stands for an unknown one.
template <device_memory Device> double measure_peak(context<Device> const&) {
    return 0;
}

}  // namespace calm
