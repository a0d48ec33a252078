#pragma once
/// \file
/// Products with weights in int8 on the cpu. Under nvcc this is missing, like all SIMD kernels.
/// \shows{tests/tensor/int8_weights_test.cpp,a_product_reads_weights_of_9_bits}

#include "calm/tensor/core/context.hpp"

#ifndef __CUDACC__

#include "calm/tensor/core/int8_weights.hpp"
#include "calm/tensor/detail/kernels/cpu/matmul.hpp"

namespace calm {

namespace detail {

// The product p, whose second factor is part of a matrix in int8. Weights are widened as they are read, which is exact.
inline void multiply_int8(context<cpu>& ctx, product<float> const& p, int8_matrix const& weights) {
    index_t const at = p.b - weights.begin;
    require(p.b_transposed && !p.a_transposed && p.ldb == weights.k, errc::usage,
            "calm::matmul: expected products x W^T with weights W in int8, found another product; hold them in float");
    if (at % weights.k % int8_block == 0 && fits_int8_blocks(p.k)) {
        gemm(ctx, product<float, int8_weight>{p.m, p.n, p.k, p.c, p.ldc, p.a, p.lda, false,
                                              int8_pointer{weights.bytes, weights.scales} + at, p.ldb, true,
                                              p.accumulates, p.bias});
        return;
    }
    // Columns that begin within a block are widened beforehand.
    arena_scope const scope(ctx.workspace);
    auto const wide = ctx.workspace.take<float>(extents<dyn, dyn>(p.n, p.k));
    ctx.parallel_ranges(p.n, 16, [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r)
            for (index_t l = 0; l < p.k; ++l)
                wide.data()[r * p.k + l] = int8_pointer{weights.bytes, weights.scales}[at + r * weights.k + l];
    });
    auto of_floats = p;
    of_floats.b = wide.data();
    of_floats.ldb = p.k;
    gemm(ctx, of_floats);
}

}  // namespace detail

/// From now on operations of this context read the matrices of `weights` in int8: `matmul` of rows with a weight
/// matrix, `gather_rows` and `argmax_token`. Results are bit-identical to those with float weights of the same values.
inline void use_int8_weights(context<cpu>& ctx, int8_weights& weights) {
    ctx.int8 = &weights;
    ctx.multiply_int8 = &detail::multiply_int8;
}

}  // namespace calm

#endif
