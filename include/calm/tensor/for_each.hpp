#pragma once
// A function of an index on every executor.

#include "calm/tensor/context.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm {

namespace detail {

// A block `threads` indices.
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

// Calls f(i) for i = 0 .. n - 1, each once and in any order. f is copied, so it holds pointers and numbers, and its
// operator() is CALM_HD; no call touches what another writes.
template <block_executor Backend, class F> void for_each(context<Backend> const& ctx, index_t n, F const& f) {
    launch(ctx, detail::blocks_for(n, detail::for_each_kernel<F>::threads), detail::for_each_kernel<F>{f, n});
}
// The same on the cpu, in ranges.
template <class F> void for_each(context<cpu> const& ctx, index_t n, F const& f) {
    ctx.parallel_ranges(n, 1024, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) f(i);
    });
}

}  // namespace calm
