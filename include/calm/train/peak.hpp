#pragma once
// How fast the machine multiplies matrices, measured. How many operations a step asks of it stands in model/flops.hpp.

#include <algorithm>
#include <chrono>

#include "calm/tensor/matmul.hpp"

namespace calm {

// FLOP/s of the fastest of some fp32 products that together take about `seconds`, with the threads of the context: what
// a step could reach if it were nothing but products of a good shape. Uses ctx.scratch and gives it back.
inline double measure_peak(context<cpu>& ctx, double seconds = 0.05) {
    constexpr index_t rows = 512;
    constexpr index_t width = 512;
    arena_scope const scope(ctx.scratch);
    auto const x = ctx.scratch.take<float>(extents<dyn, width>(rows));
    auto const w = ctx.scratch.take<float>(extents<dyn, width>(width));
    auto const y = ctx.scratch.take<float>(extents<dyn, width>(rows));
    std::fill_n(x.data(), x.size(), 1.0F);
    std::fill_n(w.data(), w.size(), 1.0F);
    using clock = std::chrono::steady_clock;
    auto const seconds_since = [](clock::time_point t) {
        return std::chrono::duration<double>(clock::now() - t).count();
    };
    auto const start = clock::now();
    double best = seconds + 1.0;
    for (int round = 0; round < 16 || seconds_since(start) < seconds; ++round) {
        auto const begin = clock::now();
        matmul(ctx, y, x, transposed(w));
        best = std::min(best, seconds_since(begin));
    }
    return 2.0 * static_cast<double>(rows * width * width) / best;
}

}  // namespace calm
