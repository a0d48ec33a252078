#include "calm/tensor/kernel.hpp"

#include "calm/tensor/expr.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr thread_order orders[] = {thread_order::ascending, thread_order::descending, thread_order::permuted};

// What a thread wrote, its neighbours read in the next phase. With `barrier` off they read in the same one.
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

template <int N> struct summing {
    static constexpr int threads = N;
    struct shared {
        float partial[threads];
    };
    float const* x;
    float* total;
    template <class Block> void operator()(Block& b, shared& s, index_t) const {
        b.phase([&](int t) { s.partial[t] = x[t]; });
        detail::sum_tree<threads>(b, s.partial);
        b.phase([&](int t) {
            if (t == threads - 1) *total = s.partial[0];
        });
    }
};

template <int N> float sum_of(std::vector<float> const& x, thread_order order) {
    context<blocks> ctx(0, 1);
    ctx.order = order;
    float total = 0;
    launch(ctx, 1, summing<N>{x.data(), &total});
    return total;
}

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

BOOST_AUTO_TEST_CASE(a_rehearsal_launches_and_fetches_nothing) {
    context<blocks> ctx(0, 1);
    ctx.rehearse(true);
    int out[64] = {7};
    launch(ctx, 1, reversed{out});
    BOOST_TEST(out[0] == 7);
    BOOST_TEST(fetch(ctx, out) == 0);
    ctx.rehearse(false);
    BOOST_TEST(fetch(ctx, out) == 7);
    launch(ctx, 0, reversed{out});
    BOOST_TEST(out[0] == 7);
}

BOOST_AUTO_TEST_CASE(enough_blocks_for_all) {
    static_assert(detail::blocks_for(0, 256) == 0 && detail::blocks_for(1, 256) == 1);
    static_assert(detail::blocks_for(256, 256) == 1 && detail::blocks_for(257, 256) == 2);
}
