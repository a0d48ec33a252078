#include "calm/tensor/core/kernel.hpp"

#include <limits>
#include <numeric>

#include "calm/tensor/expr/expr.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr thread_order orders[] = {thread_order::ascending, thread_order::descending, thread_order::permuted};

// Each thread writes and its neighbours read in the next phase. With `barrier` off they read in the same phase.
struct reversed {
    static constexpr int threads = 64;
    struct shared {
        int values[threads];
    };
    int* out;
    bool barrier = true;
    template <class Block> void operator()(Block& b, shared& s, index_t block) const {
        typename Block::template per_thread<int> kept;
        b.phase([&](int t) { s.values[t] = -1; });
        auto const write = [&](int t) {
            kept[t] = t;
            s.values[t] = static_cast<int>(block) * 1000 + t;
        };
        auto const read = [&](int t) { out[block * threads + t] = s.values[threads - 1 - t] + 100000 * kept[t]; };
        if (barrier) {
            b.phase(write);
            b.phase(read);
        } else {
            b.phase([&](int t) { write(t), read(t); });
        }
    }
};

// Runs of(b, x) in a block of N threads on x (N) and writes each thread's result to out (N).
template <int N, class X, class Y, class Of> struct together {
    static constexpr int threads = N;
    struct shared {};
    X const* x;
    Y* out;
    Of of;
    template <class Block> void operator()(Block& b, shared&, index_t) const {
        typename Block::template per_thread<X> own;
        b.phase([&](int t) { own[t] = x[t]; });
        auto const result = of(b, own);
        b.phase([&](int t) {
            if constexpr (requires { result[t]; })
                out[t] = result[t];
            else
                out[t] = result;
        });
    }
};
template <int N, class Y, class X, class Of>
std::vector<Y> worked_out(std::vector<X> const& x, Of const& of, thread_order order = thread_order::ascending) {
    context<blocks> ctx(0, 1);
    ctx.order = order;
    std::vector<Y> out(N);
    launch(ctx, 1, together<N, X, Y, Of>{x.data(), out.data(), of});
    return out;
}

constexpr auto summed = [](auto& b, auto const& x) { return b.sum(x); };
constexpr auto largest = [](auto& b, auto const& x) { return b.max(x); };

template <int N> float sum_of(std::vector<float> const& x, thread_order order) {
    auto const all = worked_out<N, float>(x, summed, order);
    BOOST_TEST(all == std::vector<float>(N, all[0]), boost::test_tools::per_element());
    return all[0];
}

// Copies x to shared memory asynchronously and returns its contents after waiting or, with `waits` off, before.
struct copying {
    static constexpr int threads = 32;
    static constexpr int each = 3;
    struct shared {
        float x[threads * each];
    };
    float const* x;
    float* out;
    bool waits = true;
    template <class Block> void operator()(Block& b, shared& s, index_t) const {
        b.phase([&](int t) {
            for (int i = each * t; i < each * (t + 1); ++i) s.x[i] = 0;  // the previous contents
        });
        b.phase([&](int t) { b.copy_async(s.x + each * t, x + each * t, each); });
        if (waits) b.wait_for_copies();
        b.phase([&](int t) {
            for (int i = t; i < threads * each; i += threads) out[i] = s.x[i];
        });
    }
};

// out = x + 1, in slices through shared memory.
struct by_slices {
    static constexpr int threads = 8;
    struct shared {
        float x[2][threads];
    };
    float const* x;
    float* out;
    index_t n;
    template <class Block> void operator()(Block& b, shared& s, index_t) const {
        auto const start = [&](int t, index_t first, int place) {
            detail::copy_first(b, &s.x[place][t], x + first + t, n - first - t);
        };
        detail::for_slices(b, n, threads, start, [&](int t, index_t first, int place) {
            // Reads an element that another thread copied.
            int const other = threads - 1 - t;
            if (first + other < n) out[first + other] = s.x[place][other] + 1;
        });
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_block_runs_in_phases) {
    for (auto const order : orders)
        for (int const threads : {1, 3}) {
            context<blocks> ctx(0, threads);
            ctx.order = order;
            std::vector<int> out(3 * 64);
            launch(ctx, 3, reversed{out.data()});
            bool good = true;
            for (int b = 0; b < 3; ++b)
                for (int t = 0; t < 64; ++t)
                    good = good && out[static_cast<std::size_t>(b * 64 + t)] == b * 1000 + 63 - t + 100000 * t;
            BOOST_TEST(good);
        }
}

BOOST_AUTO_TEST_CASE(a_missing_barrier_shows_in_another_order) {
    std::vector<std::vector<int>> all;
    for (auto const order : orders) {
        context<blocks> ctx(0, 1);
        ctx.order = order;
        std::vector<int> out(64);
        launch(ctx, 1, reversed{out.data(), false});
        all.push_back(out);
    }
    BOOST_CHECK((all[0] != all[1] && all[0] != all[2]));
}

BOOST_AUTO_TEST_CASE(every_order_runs_every_thread_once) {
    auto const check = [](auto block) {
        constexpr int n = static_cast<int>(sizeof(block.values) / sizeof(int));
        for (auto const order : orders) {
            std::vector<int> seen(n);
            host_block<n>{order}.phase([&](int t) { ++seen[static_cast<std::size_t>(t)]; });
            BOOST_TEST(std::count(seen.begin(), seen.end(), 1) == n);
        }
    };
    check(host_block<1>::per_thread<int>{});
    check(host_block<64>::per_thread<int>{});
    check(host_block<96>::per_thread<int>{});
    check(host_block<256>::per_thread<int>{});
}

BOOST_AUTO_TEST_CASE(sums_in_a_fixed_tree) {
    auto const x = draws<float>(256, 1);
    for (auto const order : orders) {
        BOOST_TEST(sum_of<1>(x, order) == x[0]);
        BOOST_TEST(sum_of<2>(x, order) == x[0] + x[1]);
        BOOST_TEST(sum_of<4>(x, order) == (x[0] + x[2]) + (x[1] + x[3]));
        BOOST_TEST(sum_of<256>(x, order) == sum_of<256>(x, thread_order::ascending));
    }
}

// Sums are trees that add halves: first within each warp, then across warps.
BOOST_AUTO_TEST_CASE(a_sum_is_the_documented_tree) {
    auto const x = draws<float>(1024, 1);
    auto const halves = [](std::vector<float> v) {
        for (auto half = v.size() / 2; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; ++i) v[i] += v[i + half];
        return v[0];
    };
    std::vector<float> of_warps;
    for (auto first = x.begin(); first != x.end(); first += 32) of_warps.push_back(halves({first, first + 32}));
    BOOST_TEST(sum_of<16>(x, thread_order::permuted) == halves({x.begin(), x.begin() + 16}));
    BOOST_TEST(sum_of<32>(x, thread_order::permuted) == of_warps[0]);
    BOOST_TEST(sum_of<128>(x, thread_order::permuted) == halves({of_warps.begin(), of_warps.begin() + 4}));
    BOOST_TEST(sum_of<1024>(x, thread_order::permuted) == halves(of_warps));
    long double exact = 0;
    for (float const v : x) exact += v;
    BOOST_TEST(std::abs(static_cast<double>(sum_of<1024>(x, thread_order::ascending) - exact)) < 1e-4);
    // Whole numbers are added exactly, for any type and any count.
    std::vector<index_t> numbers(256);
    std::iota(numbers.begin(), numbers.end(), index_t{1} << 40);
    BOOST_TEST((worked_out<256, index_t>(numbers, summed)[200]) == (index_t{256} << 40) + 255 * 128);
}

BOOST_AUTO_TEST_CASE(the_largest_of_a_block) {
    constexpr float none = std::numeric_limits<float>::quiet_NaN();
    for (auto const order : orders)
        for (std::size_t const at : {0U, 1U, 31U, 32U, 100U, 127U}) {
            auto x = draws<float>(128, 3);
            for (float& v : x) v = -std::abs(v) - 1;
            x[at] = -0.5F;
            BOOST_TEST((worked_out<128, float>(x, largest, order)) == std::vector<float>(128, -0.5F),
                       boost::test_tools::per_element());
            x[at] = none;
            for (float const v : worked_out<128, float>(x, largest, order)) BOOST_TEST(std::isnan(v));
        }
    std::vector<float> const nothing(64, -std::numeric_limits<float>::infinity());
    BOOST_TEST((worked_out<64, float>(nothing, largest)[7]) == nothing[0]);
}

// Values from lower threads are the left operand: the thread indices show it here.
BOOST_AUTO_TEST_CASE(a_fold_keeps_its_sides) {
    std::vector<float> x(128);
    std::iota(x.begin(), x.end(), 0.0F);
    auto const first = [](auto& b, auto const& v) { return b.fold(v, [](float p, float) { return p; }); };
    auto const last = [](auto& b, auto const& v) { return b.fold(v, [](float, float q) { return q; }); };
    auto const of_warps = [](auto& b, auto const& v) { return b.fold_warps(v, [](float, float q) { return q; }); };
    BOOST_TEST((worked_out<128, float>(x, first)) == std::vector<float>(128, 0.0F), boost::test_tools::per_element());
    BOOST_TEST((worked_out<128, float>(x, last)) == std::vector<float>(128, 127.0F), boost::test_tools::per_element());
    auto const ends = worked_out<128, float>(x, of_warps);
    for (std::size_t t = 0; t < 128; ++t) BOOST_TEST(ends[t] == static_cast<float>(t / 32 * 32 + 31));
}

// Several sums computed together are bit-identical to separate sums, in the documented lanes.
BOOST_AUTO_TEST_CASE(sums_of_warps_match_sequential_sums) {
    auto const check = []<int Count>(std::integral_constant<int, Count>) {
        std::vector<group<float, Count>> x(64);
        auto const numbers = draws<float>(64 * Count, 5);
        for (std::size_t i = 0; i < numbers.size(); ++i) x[i / Count].lane[i % Count] = numbers[i];
        auto const together = [](auto& b, auto const& v) { return b.template sums_of_warps<float, Count>(v); };
        auto const found = worked_out<64, float>(x, together, thread_order::permuted);
        for (int q = 0; q < Count; ++q) {
            std::vector<float> one;
            for (auto const& of_thread : x) one.push_back(of_thread.lane[q]);
            auto const want = worked_out<64, float>(
                one, [](auto& b, auto const& v) { return b.fold_warps(v, [](float a, float c) { return a + c; }); });
            for (std::size_t t = 0; t < 64; ++t)
                if (static_cast<int>(t % 32) / (32 / Count) == q) BOOST_TEST(found[t] == want[t], Count << " " << t);
        }
    };
    check(std::integral_constant<int, 1>());
    check(std::integral_constant<int, 2>());
    check(std::integral_constant<int, 8>());
    check(std::integral_constant<int, 32>());
}

BOOST_AUTO_TEST_CASE(collectives_follow_each_other) {
    auto const x = draws<float>(256, 4);
    auto const variance = [](auto& b, auto const& v) {
        float const mean = b.sum(v) / 256;
        auto square = v;
        b.phase([&](int t) { square[t] = (v[t] - mean) * (v[t] - mean); });
        return b.sum(square) + 0 * b.max(v);
    };
    double mean = 0, squares = 0;
    for (float const v : x) mean += static_cast<double>(v) / 256;
    for (float const v : x) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
    for (auto const order : orders)
        for (float const v : worked_out<256, float>(x, variance, order))
            BOOST_TEST(static_cast<double>(v) == squares, boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(threads_of_a_warp_exchange_values) {
    std::vector<int> x(128);
    std::iota(x.begin(), x.end(), 0);
    for (int mask = 0; mask < 32; ++mask) {
        auto const got = worked_out<128, int>(x, [mask](auto& b, auto const& v) { return b.shuffle_xor(v, mask); });
        for (int t = 0; t < 128; ++t) BOOST_TEST(got[static_cast<std::size_t>(t)] == t / 32 * 32 + (t % 32 ^ mask));
    }
}

BOOST_AUTO_TEST_CASE(copies_are_there_after_the_wait) {
    auto const x = draws<float>(copying::threads * copying::each, 5);
    for (auto const order : orders) {
        context<blocks> ctx(0, 1);
        ctx.order = order;
        std::vector<float> out(x.size());
        launch(ctx, 1, copying{x.data(), out.data()});
        BOOST_TEST(out == x, boost::test_tools::per_element());
        launch(ctx, 1, copying{x.data(), out.data(), false});  // misuse
        for (float const v : out) BOOST_TEST(std::isnan(v));
    }
}

BOOST_AUTO_TEST_CASE(slices_come_one_after_the_other) {
    auto const x = draws<float>(40, 6);
    for (auto const order : orders)
        for (index_t const n : {0, 1, 7, 8, 9, 24, 39}) {
            context<blocks> ctx(0, 1);
            ctx.order = order;
            std::vector<float> out(40), want(40);
            for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) want[i] = x[i] + 1;
            launch(ctx, 1, by_slices{x.data(), out.data(), n});
            BOOST_TEST(out == want, boost::test_tools::per_element());
        }
}

BOOST_AUTO_TEST_CASE(sums_of_trees_in_every_order) {
    for (index_t const n : sizes) {
        tensor<float, extents<dyn>, blocks> x{extents<dyn>(n)};
        draw(x, 1);
        context<blocks> ctx(0, 1);
        auto const total = sum(ctx, square(x));
        for (auto const order : orders) {
            ctx.order = order;
            BOOST_TEST(sum(ctx, square(x)) == total);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_dry_run_launches_and_fetches_nothing) {
    context<blocks> ctx(0, 1);
    ctx.set_dry_run(true);
    int out[64] = {7};
    launch(ctx, 1, reversed{out});
    BOOST_TEST(out[0] == 7);
    BOOST_TEST(copy_to_host(ctx, out) == 0);
    ctx.set_dry_run(false);
    BOOST_TEST(copy_to_host(ctx, out) == 7);
    launch(ctx, 0, reversed{out});
    BOOST_TEST(out[0] == 7);
}

BOOST_AUTO_TEST_CASE(enough_blocks_for_all) {
    static_assert(detail::blocks_for(0, 256) == 0 && detail::blocks_for(1, 256) == 1);
    static_assert(detail::blocks_for(256, 256) == 1 && detail::blocks_for(257, 256) == 2);
}
