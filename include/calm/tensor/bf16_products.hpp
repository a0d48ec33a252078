#pragma once
// Products in bf16, for training: twice as many multiplications a second where the processor has AVX512-BF16; a GPU's
// tensor cores multiply bf16 and not fp32. Those of the cpu are not there under nvcc, as no kernels in vectors are: a
// unit of another compiler asks for them.

#include "calm/tensor/context.hpp"

namespace calm {

// From here on `matmul` of float by this device's context rounds both factors to bf16, to nearest with ties to even,
// and adds up in fp32. Of an element's sum of |a b| it is off by at most 2^-8 and what fp32 rounds. Nothing is stored
// otherwise than before. Products of at most 64 rows stay as they are, and those inside attention's own kernels.
template <device_memory Backend> void multiply_in_bf16(context<Backend>& ctx) {
    ctx.products_in_bf16 = true;
}

}  // namespace calm

#ifndef __CUDACC__

#include "calm/tensor/cpu/bf16_pairs.hpp"
#include "calm/tensor/cpu/matmul_bf16.hpp"
#include "calm/tensor/cpu/multiply_adds.hpp"
#include "calm/tensor/packet_sums.hpp"

namespace calm {

namespace detail {

#ifdef __AVX512BF16__

// multiply_adds of pairs.
struct pair_multiply_adds {
    static constexpr int chains = 24;  // hide the latency, and fit the registers
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

using pair_multiply_adds = multiply_adds<cpu>;  // each number of a pair by itself: no more than in fp32

#endif

inline constexpr float_products products_in_bf16{gemm_in_bf16, pair_multiply_adds::run, pair_multiply_adds::flops};

}  // namespace detail

// Whether products in bf16 are an instruction (VDPBF16PS) of what is compiled for; else they are computed by others,
// slower than fp32.
#ifdef __AVX512BF16__
inline constexpr bool has_bf16_products = true;
#else
inline constexpr bool has_bf16_products = false;
#endif

// From here on `matmul` of float by this context may round both factors to bf16, to nearest with ties to even, and adds
// up in fp32, all of a product's threads to the same bits. Of an element's sum of |a b| it is off by at most 2^-8 and
// what fp32 rounds. Nothing is stored otherwise than before. Products of few rows, at most 64, may stay as they are:
// reading their factors is what takes time; so do those inside attention. Of a factor that ctx.copies has a copy of,
// that is multiplied, which may be rounded otherwise.
inline void multiply_in_bf16(context<cpu>& ctx) {
    ctx.products = &detail::products_in_bf16;
}

}  // namespace calm

#endif
