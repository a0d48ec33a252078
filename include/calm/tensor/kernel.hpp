#pragma once
// Portable block kernels: a functor over (block, shared memory, block index) whose phases end in barriers. On a device
// a block of threads runs it; here, in the `emulated` executor, a loop a phase.
//
//     struct kernel {
//         static constexpr int threads = 128;
//         struct shared { ... };
//         template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
//             b.phase([&](int t) { ... });      // every thread t, then a barrier
//         }
//     };

#include <memory>

#include "calm/tensor/context.hpp"

namespace calm {

// A block of N threads on the host: each phase runs them one after the other.
template <int N> struct host_block {
    // A variable that every thread keeps across phases.
    template <class T> struct per_thread {
        T values[N];
        CALM_HD T& operator[](int t) { return values[t]; }
    };
    template <class F> void phase(F const& f) {
        for (int t = 0; t < N; ++t) f(t);
    }
};

// Runs the kernel on blocks 0 .. blocks - 1.
template <class Kernel> void launch(context<emulated> const& ctx, index_t blocks, Kernel const& kernel) {
    ctx.parallel(blocks, [&](index_t block) {
        auto const shared = std::make_unique<typename Kernel::shared>();
        host_block<Kernel::threads> threads;
        kernel(threads, *shared, block);
    });
}

}  // namespace calm
