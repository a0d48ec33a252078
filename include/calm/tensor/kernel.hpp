#pragma once
// Portable block kernels: a functor over (block, shared memory, block index) whose phases end in barriers. On a device
// a block of threads runs it; on the host, a loop a phase.
//
//     struct kernel {
//         static constexpr int threads = 128;
//         struct shared { ... };
//         template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
//             b.phase([&](int t) { ... });      // every thread t, then a barrier
//         }
//     };
//
// Within a phase the threads run in no order: what one writes, another may read only in a later phase.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>

#include "calm/tensor/context.hpp"

namespace calm {

namespace detail {

// Number i of n in that order; `factor` shares no divisor with n.
CALM_HD constexpr index_t in_order(thread_order order, index_t i, index_t n, index_t factor) {
    switch (order) {
    case thread_order::descending:
        return n - 1 - i;
    case thread_order::permuted:
        return (i * factor + n / 3) % n;
    default:
        return i;
    }
}
constexpr index_t factor_for(index_t n) {
    index_t factor = 5;
    while (std::gcd(factor, n) != 1) ++factor;
    return factor;
}

}  // namespace detail

// A block of N threads on the host: each phase runs them one after the other, in the order asked for.
template <int N> struct host_block {
    thread_order order = thread_order::ascending;  // of the threads within a phase

    // A variable that every thread keeps across phases.
    template <class T> struct per_thread {
        T values[N];                                        // one a thread
        CALM_HD T& operator[](int t) { return values[t]; }  // thread t's
    };
    // Calls f(thread) for each of the N threads; what follows sees what all of them wrote.
    template <class F> CALM_HD void phase(F const& f) {
        static_assert(N % 5 != 0);
        for (int i = 0; i < N; ++i) f(static_cast<int>(detail::in_order(order, i, N, 5)));
    }
};

namespace detail {

// Runs the kernel on blocks 0 .. blocks - 1 of the host. Shared memory starts as no number.
template <host_memory Backend, class Kernel>
void run_blocks(context<Backend> const& host, thread_order order, index_t blocks, Kernel const& kernel) {
    index_t const factor = factor_for(blocks);
    host.parallel(blocks, [&](index_t i) {
        using shared_memory = typename Kernel::shared;
        auto const shared = std::make_unique_for_overwrite<shared_memory>();
        std::fill_n(reinterpret_cast<std::byte*>(shared.get()), sizeof(shared_memory), std::byte{0xFF});
        host_block<Kernel::threads> block{order};
        kernel(block, *shared, in_order(order, i, blocks, factor));
    });
}

}  // namespace detail

// Runs the kernel on blocks 0 .. blocks - 1.
template <class Kernel> void launch(context<blocks> const& ctx, index_t count, Kernel const& kernel) {
    if (count > 0) detail::run_blocks(ctx, ctx.order, count, kernel);
}

namespace detail {

// How many blocks of `each` items hold n of them.
CALM_HD constexpr index_t blocks_for(index_t n, index_t each) {
    return (n + each - 1) / each;
}

// partial (Threads, a power of two) combined in a fixed tree, left in partial[0]. Ends in a barrier.
template <int Threads, class Block, class T, class Combine>
CALM_HD void fold_tree(Block& b, T* partial, Combine const& combine) {
    static_assert((Threads & (Threads - 1)) == 0);
    for (int half = Threads / 2; half > 0; half /= 2)
        b.phase([&](int t) {
            if (t < half) partial[t] = combine(partial[t], partial[t + half]);
        });
}

// The same, added.
template <int Threads, class Block, class T> CALM_HD void sum_tree(Block& b, T* partial) {
    fold_tree<Threads>(b, partial, [](T a, T c) { return a + c; });
}

// The sum of term(i) over begin <= i < end, left in partial[0]: every thread takes every Threads-th of them, then the
// tree. Ends in a barrier.
template <int Threads, class Block, class T, class Term>
CALM_HD void sum_terms(Block& b, T* partial, index_t begin, index_t end, Term const& term) {
    b.phase([&](int t) {
        T total{};
        for (index_t i = begin + t; i < end; i += Threads) total += term(i);
        partial[t] = total;
    });
    sum_tree<Threads>(b, partial);
}

}  // namespace detail

}  // namespace calm
