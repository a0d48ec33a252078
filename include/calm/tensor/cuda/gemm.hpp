#pragma once
// Products on a device: cuBLASLt, or the block kernel for what it cannot do.

#ifdef __CUDACC__

#include "calm/tensor/cuda/launch.hpp"
#include "calm/tensor/matmul.hpp"

namespace calm::detail {

template <class T> void gemm(context<cuda> const& ctx, product<T> const& p) {
    if (ctx.rehearsing() || ctx.blas().multiply(ctx.queue(), p)) return;
    block_product(ctx, p);
}

}  // namespace calm::detail

#endif
