#pragma once
// Calls a function for every index, on any backend.

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/kernel.hpp"

namespace calm {

namespace detail {

// Each block handles `threads` indices.
template <class F> struct for_each_kernel {
    static constexpr int threads = 256;
    struct shared {};
    F f;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            if (index_t const i = block * threads + t; i < n) f(i);
        });
    }
};

}  // namespace detail

// Calls f(i) once for each i = 0 .. n - 1, in any order. f is copied to the device, so it may hold only pointers and
// numbers; its operator() is CALM_HD. No call may touch memory that another call writes.
template <block_backend Backend, class F> void for_each(context<Backend> const& ctx, index_t n, F const& f) {
    launch(ctx, detail::blocks_for(n, detail::for_each_kernel<F>::threads), detail::for_each_kernel<F>{f, n});
}
// On the cpu, each task handles a range of indices.
template <class F> void for_each(context<cpu> const& ctx, index_t n, F const& f) {
    ctx.parallel_ranges(n, 1024, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) f(i);
    });
}

}  // namespace calm
