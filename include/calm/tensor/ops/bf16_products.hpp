#pragma once
/// \file
/// Products in bf16 on the cpu, for training: twice the multiplications per second with AVX512-BF16. Under nvcc this is
/// missing, like all SIMD kernels: use it in a source file that another compiler builds. For devices see context.hpp.
/// \shows{tests/tensor/bf16_products_test.cpp,products_of_small_whole_numbers_are_exact}

#include "calm/tensor/core/context.hpp"

#ifndef __CUDACC__

#include "calm/tensor/detail/core/packet_sums.hpp"
#include "calm/tensor/detail/kernels/cpu/bf16_pairs.hpp"
#include "calm/tensor/detail/kernels/cpu/matmul_bf16.hpp"
#include "calm/tensor/detail/kernels/cpu/multiply_adds.hpp"

namespace calm {

namespace detail {

#ifdef __AVX512BF16__

// multiply_adds of pairs.
struct pair_multiply_adds {
    static constexpr int chains = 24;  // enough to hide the latency, few enough for the registers
    static constexpr int turns = 1 << 13;
    static constexpr double flops = 4.0 * turns * chains * static_cast<double>(pairs_in_a_register);

    static float run() {
        native_floats sums[chains];
        for (int c = 0; c < chains; ++c) sums[c] = native_floats{} + static_cast<float>(c);
        native_pairs const pairs = pairs_of(native_floats{} + 0.5F, native_floats{} + 0.25F);
        for (int turn = 0; turn < turns; ++turn)
            unrolled<chains>([&](auto c) __attribute__((always_inline)) { add_products(sums[c], pairs, pairs); });
        float total = 0;
        for (auto const& sum : sums)
            for (index_t l = 0; l < pairs_in_a_register; ++l) total += sum[l];
        return total;
    }
};

#else

using pair_multiply_adds = multiply_adds<cpu>;  // no instruction for pairs: no faster than fp32

#endif

inline constexpr float_products products_in_bf16{gemm_in_bf16, pair_multiply_adds::run, pair_multiply_adds::flops};

}  // namespace detail

// Whether the target CPU has an instruction for bf16 products (VDPBF16PS). Without it they are slower than fp32.
#ifdef __AVX512BF16__
inline constexpr bool has_bf16_products = true;
#else
inline constexpr bool has_bf16_products = false;
#endif

/// From now on `matmul` of float with this context may round both factors to bf16 (nearest, ties to even); it
/// accumulates in fp32, with the same bits for any number of threads. The error of an element is at most 2^-7 of its
/// sum of |a b|, plus fp32 rounding. Results keep their storage type. Products of at most 64 rows may stay fp32,
/// because reading the factors dominates, and so do products inside attention. A factor with a copy in ctx.copies is
/// replaced by the copy, which may be rounded differently.
inline void multiply_in_bf16(context<cpu>& ctx) {
    ctx.products = &detail::products_in_bf16;
}

}  // namespace calm

#endif
