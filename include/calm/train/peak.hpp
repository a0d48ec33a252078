#pragma once
// How fast the machine adds products, measured: the denominator of every share. How many operations a step asks of it
// stands in model/flops.hpp.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "calm/tensor/context.hpp"
#include "calm/tensor/cpu/multiply_adds.hpp"
#include "calm/train/throughput.hpp"

namespace calm {

// FLOP/s of multiply-adds on registers, in fp32 or as the context multiplies, the threads of the context together, no
// more of them than the machine has: no kernel is faster. Every thread by its fastest round, so that threads do not
// wait for each other; each goes on for at least `seconds`, and as long as it still rises, at most ten times as long:
// on a busy machine few rounds are undisturbed. The clock, in seconds, is an argument; all threads ask it.
template <std::same_as<cpu> Backend>
double measure_peak(context<Backend> const& ctx, double seconds = 0.05,
                    std::function<double()> const& clock = steady_seconds) {
    using fp32 = detail::multiply_adds<Backend>;
    auto const work = ctx.products != nullptr ? *ctx.products : detail::float_products{nullptr, fp32::run, fp32::flops};
    std::vector<float> kept(static_cast<std::size_t>(ctx.threads()));
    std::vector<double> best(kept.size());  // rounds a second
    ctx.parallel(ctx.threads(), [&](index_t task) {
        auto& fastest = best[static_cast<std::size_t>(task)];
        double const start = clock();
        double rose = start;
        for (double now = start; now - start < seconds || (now - rose < seconds && now - start < 10 * seconds);) {
            double const begin = now;
            kept[static_cast<std::size_t>(task)] += work.round();
            now = clock();
            if (1 / (now - begin) > 1.01 * fastest) rose = now;
            fastest = std::max(fastest, 1 / (now - begin));
        }
    });
    double const rounds = std::accumulate(best.begin(), best.end(), 0.0);
    double const at_once = std::min<double>(ctx.threads(), detail::threads_of_the_machine()) / ctx.threads();
    volatile float const used = kept[0];
    static_cast<void>(used);
    return rounds * at_once * work.flops;
}

// Of a device it is not measured: 0, which stands for an unknown one.
template <device_memory Device> double measure_peak(context<Device> const&) {
    return 0;
}

}  // namespace calm
