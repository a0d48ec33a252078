#pragma once
// Portable block kernels: a functor over (block, shared memory, block index) whose phases end in barriers. On a device
// a block of threads runs it; on the host, a loop a phase.
//
//     struct kernel {
//         static constexpr int threads = 128;
//         struct shared { ... };
//         template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
//             typename Block::template per_thread<float> x;
//             b.phase([&](int t) { x[t] = ...; });      // every thread t, then a barrier
//             float const total = b.sum(x);             // the same in every thread
//         }
//     };
//
// Within a phase the threads run in no order: what one writes, another may read only in a later phase. Between phases a
// kernel says what all threads do alike: it calls the block's members under conditions that are the same in all of
// them.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <type_traits>
#include <vector>

#include "calm/tensor/context.hpp"
#include "calm/tensor/packet.hpp"

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

// a + b.
struct sum_of_two {
    template <class T> CALM_HD T operator()(T a, T b) const { return a + b; }
};
// The larger; NaN where one is.
struct larger_of_two {
    template <class T> CALM_HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};

}  // namespace detail

// Threads that exchange values without shared memory: neighbours, thread t being lane t % warp_size of its warp.
inline constexpr int warp_size = 32;

// What N threads, a power of two, work out together from a per_thread variable of theirs, in terms of `each`,
// `shuffle_xor` and `of_warps`, which a Block has. All go by one tree, on the host as on a device, so they have the
// same bits there: values of threads that are half a warp apart are combined first, then those a quarter apart, down to
// neighbours; then those of the warps in the same way. combine(x, y) gets what comes from the lower threads as x.
template <class Block, int N> struct block_collectives {
    static constexpr int threads = N;                            // in the block
    static constexpr int lanes = N < warp_size ? N : warp_size;  // in a warp of it

    // The values of each warp combined, for each of its threads.
    template <class X, class Combine> CALM_HD X fold_warps(X const& x, Combine const& combine) {
        return folded<lanes>(x, combine);
    }
    // Those of the block: the same in every thread.
    template <class X, class Combine> CALM_HD auto fold(X const& x, Combine const& combine) {
        X all = folded<lanes>(x, combine);
        if constexpr (N > lanes) all = folded<N / lanes>(self().of_warps(all), combine);
        return self().any_of(all);
    }
    // The sum of the threads' values.
    template <class X> CALM_HD auto sum(X const& x) { return fold(x, detail::sum_of_two{}); }
    // The sums over a warp of each of Count values, a power of two up to `lanes`: x holds a group<T, Count> of them,
    // and lane l gets sum l / (lanes / Count). Each by the tree above, all together by fewer shuffles than one after
    // another.
    template <class T, int Count, class X> CALM_HD auto sums_of_warps(X const& x) { return spread<T, Count, lanes>(x); }
    // The largest; NaN where one is.
    template <class X> CALM_HD auto max(X const& x) { return fold(x, detail::larger_of_two{}); }

private:
    CALM_HD Block& self() { return static_cast<Block&>(*this); }

    // Of `Among` neighbours each: half of them go on with the first half of the sums, half with the others.
    template <class T, int Count, int Among, class X> CALM_HD auto spread(X const& x) {
        static_assert((Count & (Count - 1)) == 0 && Count <= Among,
                      "calm::sums_of_warps: expected a power of two of values, at most one a lane");
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

    // Of `Count` neighbours each.
    template <int Count, class X, class Combine> CALM_HD X folded(X x, Combine const& combine) {
        static_assert((N & (N - 1)) == 0, "calm::fold: expected a power of two of threads in a block");
        for (int mask = Count / 2; mask > 0; mask /= 2) {
            X const other = self().shuffle_xor(x, mask);
            self().each([&](int t) { x[t] = (t & mask) == 0 ? combine(x[t], other[t]) : combine(other[t], x[t]); });
        }
        return x;
    }
};

// A block of N threads on the host: each phase runs them one after the other, in the order asked for.
template <int N> class host_block : public block_collectives<host_block<N>, N> {
public:
    explicit host_block(thread_order order = thread_order::ascending) : order_(order) {}  // within a phase

    // A variable that every thread keeps across phases.
    template <class T> struct per_thread {
        T values[N];                                                    // one a thread
        CALM_HD T& operator[](int t) { return values[t]; }              // thread t's
        CALM_HD T const& operator[](int t) const { return values[t]; }  // the same
    };
    // Calls f(thread) for each of the N threads; what follows sees what all of them wrote.
    template <class F> CALM_HD void phase(F const& f) {
        static_assert(N % 5 != 0);
        for (int i = 0; i < N; ++i) f(static_cast<int>(detail::in_order(order_, i, N, 5)));
    }
    // The same without a barrier: of what is each thread's own.
    template <class F> CALM_HD void each(F const& f) {
        for (int t = 0; t < N; ++t) f(t);
    }

    // What the thread of the same warp has whose lane differs in the bits of the mask, below the warp's size.
    template <class T> CALM_HD per_thread<T> shuffle_xor(per_thread<T> const& x, int mask) {
        per_thread<T> y;
        for (int t = 0; t < N; ++t) y.values[t] = x.values[t ^ mask];
        return y;
    }
    // For lane l: what the first thread of warp l has, over and over where there are fewer warps.
    template <class T> CALM_HD per_thread<T> of_warps(per_thread<T> const& x) {
        per_thread<T> y;
        for (int t = 0; t < N; ++t) y.values[t] = x.values[t * warp_size % N];
        return y;
    }
    // One of the values, where all are the same.
    template <class T> CALM_HD T any_of(per_thread<T> const& x) { return x.values[0]; }

    // From a phase: begins to copy `count` neighbouring values from global to shared memory, where they are after
    // wait_for_copies. Here they are copied there, and before that are no numbers.
    template <class T> CALM_HD void copy_async([[maybe_unused]] T* to, [[maybe_unused]] T const* from, int count = 1) {
        static_assert(std::is_trivially_copyable_v<T>);
#ifndef __CUDA_ARCH__
        auto const bytes = static_cast<std::size_t>(count) * sizeof(T);
        std::memset(to, 0xFF, bytes);
        begun_.push_back({to, from, bytes});
#endif
    }
    // Ends what the threads began to copy; all of them see it.
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

// Calls f<V>(i) for the elements of [begin, end) that are thread t's: in groups V, the rest one by one.
template <class Block, class Group, class F> CALM_HD void for_groups_of(int t, index_t begin, index_t end, F const& f) {
    constexpr index_t width = lanes<Group>;
    index_t const whole = begin + (end - begin) / width * width;
    for (index_t i = begin + t * width; i < whole; i += Block::threads * width) f.template operator()<Group>(i);
    for (index_t i = whole + t; i < end; i += Block::threads) f.template operator()<lane_t<Group>>(i);
}
// The same in groups of 16 bytes.
template <class Block, class T, class F> CALM_HD void for_groups(int t, index_t begin, index_t end, F const& f) {
    for_groups_of<Block, group_of<T>>(t, begin, end, f);
}

// The sum of term(i) over begin <= i < end, the same in every thread: each takes every threads-th of them, then b.sum.
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

// From a phase: begins to copy the first `count` of n values that are to stand at `to`; the others are zeros.
template <class Block, class T> CALM_HD void copy_first(Block& b, T* to, T const* from, index_t count, int n = 1) {
    int const there = count < 0 ? 0 : count < n ? static_cast<int>(count) : n;
    if (there > 0) b.copy_async(to, from, there);
    for (int i = there; i < n; ++i) to[i] = T{};
}

// The first `size` elements of something in slices that two places of shared memory hold by turns: start(t, first,
// place) begins to copy the slice at `first`, use(t, first, place) works on it while the next one comes.
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
