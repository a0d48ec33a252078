#pragma once
/// \file
/// Portable block kernels: functors over (block, shared memory, block index) whose phases end in barriers. On a device
/// a thread block runs the kernel; on the host each phase is a loop over the threads.
///
///     struct kernel {
///         static constexpr int threads = 128;
///         struct shared { ... };
///         template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
///             typename Block::template per_thread<float> x;
///             b.phase([&](int t) { x[t] = ...; });      // every thread t, then a barrier
///             float const total = b.sum(x);             // equal in every thread
///         }
///     };
///
/// Within a phase the order of threads is undefined: a thread may read values that others wrote only in earlier phases.
/// Code between phases must be uniform: all threads call the same members of the block under the same conditions.
/// \shows{examples/11_block_kernel.cpp}

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <type_traits>
#include <vector>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/packet.hpp"

namespace calm {

namespace detail {

// Index i of n in that order; `factor` is coprime to n.
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

// a + b.
struct sum_of_two {
    template <class T> CALM_HD T operator()(T a, T b) const { return a + b; }
};
// The larger; NaN if either is NaN.
struct larger_of_two {
    template <class T> CALM_HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};

}  // namespace detail

/// Threads per warp, which exchange values without shared memory; thread t is lane t % warp_size of its warp.
inline constexpr int warp_size = 32;

/// Collectives of a block of N threads (a power of two) on a per_thread variable, built on the members `each`,
/// `shuffle_xor` and `of_warps` of Block. Host and device use the same reduction tree, so they get the same bits. First
/// values half a warp apart are combined, then a quarter, down to neighbours; then the warps likewise. combine(x, y)
/// receives the value of the lower threads as x.
template <class Block, int N> struct block_collectives {
    static constexpr int threads = N;                            ///< in the block
    static constexpr int lanes = N < warp_size ? N : warp_size;  ///< threads per warp of this block

    /// Combines the values of each warp; all its threads get the result.
    template <class X, class Combine> CALM_HD X fold_warps(X const& x, Combine const& combine) {
        return folded<lanes>(x, combine);
    }
    /// Combines the values of the block; the result is equal in every thread.
    template <class X, class Combine> CALM_HD auto fold(X const& x, Combine const& combine) {
        X all = folded<lanes>(x, combine);
        if constexpr (N > lanes) all = folded<N / lanes>(self().of_warps(all), combine);
        return self().any_of(all);
    }
    /// The sum of the threads' values.
    template <class X> CALM_HD auto sum(X const& x) { return fold(x, detail::sum_of_two{}); }
    /// Sums each lane of x, a group<T, Count> per thread, over a warp; Count is a power of two up to `lanes`. Lane l of
    /// the warp gets sum l / (lanes / Count). Every sum uses the tree above, with fewer shuffles than Count separate
    /// sums.
    template <class T, int Count, class X> CALM_HD auto sums_of_warps(X const& x) { return spread<T, Count, lanes>(x); }
    /// The maximum of the threads' values; NaN if one is NaN.
    template <class X> CALM_HD auto max(X const& x) { return fold(x, detail::larger_of_two{}); }

private:
    CALM_HD Block& self() { return static_cast<Block&>(*this); }

    // Over `Among` neighbours: one half of them continues with the first half of the sums, the other with the second.
    template <class T, int Count, int Among, class X> CALM_HD auto spread(X const& x) {
        static_assert((Count & (Count - 1)) == 0 && Count <= Among,
                      "calm::sums_of_warps: expected a power of two of values, at most one per lane");
        if constexpr (Count == 1) {
            typename Block::template per_thread<T> last;
            self().each([&](int t) { last[t] = x[t].lane[0]; });
            return folded<Among>(last, detail::sum_of_two{});
        } else {
            constexpr int half = Count / 2;
            typename Block::template per_thread<group<T, half>> kept, given;
            self().each([&](int t) {
                bool const is_upper = (t & Among / 2) != 0;
                for (int i = 0; i < half; ++i) {
                    kept[t].lane[i] = is_upper ? x[t].lane[half + i] : x[t].lane[i];
                    given[t].lane[i] = is_upper ? x[t].lane[i] : x[t].lane[half + i];
                }
            });
            auto const got = self().shuffle_xor(given, Among / 2);
            self().each([&](int t) { kept[t] += got[t]; });
            return spread<T, half, Among / 2>(kept);
        }
    }

    // Over `Count` neighbours.
    template <int Count, class X, class Combine> CALM_HD X folded(X x, Combine const& combine) {
        static_assert((N & (N - 1)) == 0, "calm::fold: expected a power of two of threads in a block");
        for (int mask = Count / 2; mask > 0; mask /= 2) {
            X const other = self().shuffle_xor(x, mask);
            self().each([&](int t) { x[t] = (t & mask) == 0 ? combine(x[t], other[t]) : combine(other[t], x[t]); });
        }
        return x;
    }
};

/// A block of N threads on the host: each phase runs them one after another, in the given order.
template <int N> class host_block : public block_collectives<host_block<N>, N> {
public:
    explicit host_block(thread_order order = thread_order::ascending) : order_(order) {}  ///< within a phase

    /// A variable that every thread keeps across phases.
    template <class T> struct per_thread {
        T values[N];                                                    ///< one per thread
        CALM_HD T& operator[](int t) { return values[t]; }              ///< of thread t
        CALM_HD T const& operator[](int t) const { return values[t]; }  ///< of thread t
    };
    /// Calls f(thread) for each of the N threads, then a barrier: later code sees all that they wrote.
    template <class F> CALM_HD void phase(F const& f) {
        static_assert(N % 5 != 0);
        for (int i = 0; i < N; ++i) f(static_cast<int>(detail::in_order(order_, i, N, 5)));
    }
    /// Calls f(thread) without a barrier, for data that only its own thread uses.
    template <class F> CALM_HD void each(F const& f) {
        for (int t = 0; t < N; ++t) f(t);
    }

    /// Exchanges values within a warp: lane l gets the value of lane l ^ mask; mask < warp_size.
    template <class T> CALM_HD per_thread<T> shuffle_xor(per_thread<T> const& x, int mask) {
        per_thread<T> y;
        for (int t = 0; t < N; ++t) y.values[t] = x.values[t ^ mask];
        return y;
    }
    /// Lane l gets the value of the first thread of warp l, cyclically if there are fewer warps.
    template <class T> CALM_HD per_thread<T> of_warps(per_thread<T> const& x) {
        per_thread<T> y;
        for (int t = 0; t < N; ++t) y.values[t] = x.values[t * warp_size % N];
        return y;
    }
    /// The common value of a variable that is equal in all threads.
    template <class T> CALM_HD T any_of(per_thread<T> const& x) { return x.values[0]; }

    /// Within a phase: starts to copy `count` adjacent values from global to shared memory; wait_for_copies completes
    /// the copy. On the host the destination is NaN until then.
    template <class T> CALM_HD void copy_async([[maybe_unused]] T* to, [[maybe_unused]] T const* from, int count = 1) {
        static_assert(std::is_trivially_copyable_v<T>);
#ifndef __CUDA_ARCH__
        auto const bytes = static_cast<std::size_t>(count) * sizeof(T);
        std::memset(to, 0xFF, bytes);
        begun_.push_back({to, from, bytes});
#endif
    }
    /// Completes the copies that the threads started; all threads see the values.
    CALM_HD void wait_for_copies() {
#ifndef __CUDA_ARCH__
        for (auto const& c : begun_) std::memcpy(c.to, c.from, c.bytes);
        begun_.clear();
#endif
    }

private:
    struct begun {
        void* to;
        void const* from;
        std::size_t bytes;
    };
    thread_order order_;
    std::vector<begun> begun_;
};

namespace detail {

// Runs blocks 0 .. blocks - 1 of the kernel on the host. Shared memory starts as NaN.
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

/// Runs blocks 0 .. count - 1 of the kernel.
template <class Kernel> void launch(context<blocks> const& ctx, index_t count, Kernel const& kernel) {
    if (count > 0) detail::run_blocks(ctx, ctx.order, count, kernel);
}

namespace detail {

// The number of blocks for n items, `each` items per block.
CALM_HD constexpr index_t blocks_for(index_t n, index_t each) {
    return (n + each - 1) / each;
}

// Calls f<V>(i) for thread t's elements of [begin, end): groups V, then the remainder one by one.
template <class Block, class Group, class F> CALM_HD void for_groups_of(int t, index_t begin, index_t end, F const& f) {
    constexpr index_t width = lanes<Group>;
    index_t const whole = begin + (end - begin) / width * width;
    for (index_t i = begin + t * width; i < whole; i += Block::threads * width) f.template operator()<Group>(i);
    for (index_t i = whole + t; i < end; i += Block::threads) f.template operator()<lane_t<Group>>(i);
}
// For groups of 16 bytes.
template <class Block, class T, class F> CALM_HD void for_groups(int t, index_t begin, index_t end, F const& f) {
    for_groups_of<Block, group_of<T>>(t, begin, end, f);
}

// The sum of term(i) over begin <= i < end, equal in every thread: thread t adds every Block::threads-th term from t
// on, then b.sum.
template <class Block, class Term> CALM_HD auto sum_terms(Block& b, index_t begin, index_t end, Term const& term) {
    using T = std::remove_cvref_t<decltype(term(begin))>;
    typename Block::template per_thread<T> total;
    b.phase([&](int t) {
        T mine{};
        for (index_t i = begin + t; i < end; i += Block::threads) mine += term(i);
        total[t] = mine;
    });
    return b.sum(total);
}

// Within a phase: starts to copy the first `count` of n values to `to`; the others become zero.
template <class Block, class T> CALM_HD void copy_first(Block& b, T* to, T const* from, index_t count, int n = 1) {
    int const there = count < 0 ? 0 : count < n ? static_cast<int>(count) : n;
    if (there > 0) b.copy_async(to, from, there);
    for (int i = there; i < n; ++i) to[i] = T{};
}

// Double buffering: processes `size` elements in slices, alternating between two places in shared memory. Calls
// start(t, first, place) to start copying the slice at `first`. Calls use(t, first, place) to work on it while the next
// one is copied.
template <class Block, class Start, class Use>
CALM_HD void for_slices(Block& b, index_t size, index_t slice, Start const& start, Use const& use) {
    if (size <= 0) return;
    b.phase([&](int t) { start(t, index_t{0}, 0); });
    int place = 0;
    for (index_t first = 0; first < size; first += slice) {
        b.wait_for_copies();
        b.phase([&](int t) {
            if (first + slice < size) start(t, first + slice, 1 - place);
            use(t, first, place);
        });
        place = 1 - place;
    }
}

}  // namespace detail

}  // namespace calm
