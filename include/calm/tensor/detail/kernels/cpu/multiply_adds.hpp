#pragma once
// The peak multiply-add rate of a thread, measured on registers alone. Empty under nvcc, whose version 13.0 crashes on
// arithmetic with 64-byte vectors.

#include "calm/tensor/core/backend.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"

namespace calm::detail {

// A round of fp32 multiply-adds: run() does `flops` of them. Use its result, or the compiler removes the work.
template <class Backend> struct multiply_adds;

#ifndef __CUDACC__

template <> struct multiply_adds<cpu> {
    using V = vectors_of<float>::native;
    static constexpr int chains = 12;  // enough to hide the latency, few enough for the registers
    static constexpr int turns = 1 << 14;
    static constexpr index_t lanes = sizeof(V) / sizeof(float);
    static constexpr double flops = 2.0 * turns * chains * lanes;

    static float run() {
        V sums[chains];
        for (int c = 0; c < chains; ++c) sums[c] = V{} + static_cast<float>(c);
        V const factor = V{} + 0.999F;
        V const term = V{} + 0.001F;
        for (int turn = 0; turn < turns; ++turn)
            unrolled<chains>([&](auto c) __attribute__((always_inline)) { sums[c] = sums[c] * factor + term; });
        float total = 0;
        for (V const& sum : sums)
            for (index_t l = 0; l < lanes; ++l) total += sum[l];
        return total;
    }
};

#endif

}  // namespace calm::detail
