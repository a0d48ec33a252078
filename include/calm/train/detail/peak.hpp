#pragma once
// Measures how fast the machine multiplies and adds: the denominator of every utilisation. model/flops.hpp counts the
// operations per step.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/detail/kernels/cpu/multiply_adds.hpp"
#include "calm/train/detail/throughput.hpp"

namespace calm {

// Peak FLOP/s of multiply-adds on registers, in fp32 or as the context multiplies. It adds up all threads of the
// context, but no more than the machine has; no kernel is faster. Each thread counts its own fastest round, so threads
// do not wait for each other. A thread runs for at least `seconds`, and up to ten times as long while its speed still
// rises: on a busy machine few rounds are undisturbed. All threads call `clock`, which returns seconds.
template <std::same_as<cpu> Backend>
double measure_peak(context<Backend> const& ctx, double seconds = 0.05,
                    std::function<double()> const& clock = steady_seconds) {
    using fp32 = detail::multiply_adds<Backend>;
    auto const work = ctx.products != nullptr ? *ctx.products : detail::float_products{nullptr, fp32::run, fp32::flops};
    std::vector<float> kept(static_cast<std::size_t>(ctx.threads()));
    std::vector<double> best(kept.size());  // rounds per second
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

// Not measured on a device: 0, which means unknown.
template <device_memory Device> double measure_peak(context<Device> const&) {
    return 0;
}

}  // namespace calm
