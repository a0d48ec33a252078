#pragma once
// Products on a GPU: by cuBLASLt, or by the block kernel if it does not support them, which the context counts.

#ifdef __CUDACC__

#include "calm/tensor/detail/device/cuda/launch.hpp"
#include "calm/tensor/ops/matmul.hpp"

namespace calm::detail {

template <class T, class W> void stored_product(context<cuda> const& ctx, product<T, W, W> const& p) {
    if (ctx.is_dry_run()) return;
    bool const is_empty = p.m == 0 || p.n == 0 || p.k == 0;  // refused by cuBLASLt; gives a bias, zeros or nothing
    if (!is_empty && ctx.blas().supports(p) &&
        !ctx.order().launches("a product", p.m * p.n, static_cast<std::uint64_t>(p.k)))
        return;
    if (!is_empty && ctx.blas().multiply(ctx.queue(), p))
        check_launched(ctx, typeid(product<T, W, W>));
    else
        block_product(ctx, p);
}

}  // namespace calm::detail

#endif
