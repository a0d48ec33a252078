#include "calm/tensor/core/context.hpp"

#include <atomic>

#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

using of_the_host = boost::mpl::list<test_device<cpu, float>, test_device<blocks, float>>;  // a device has no tasks

BOOST_AUTO_TEST_CASE_TEMPLATE(every_task_runs_once_at_any_number_of_threads, on, of_the_host) {
    for (int threads : {1, 2, 3, 7}) {
        typename on::context const ctx(5, threads);
        BOOST_TEST(ctx.threads() == threads);
        for (index_t const tasks : {0, 1, 2, 100}) {
            std::vector<std::atomic<int>> calls(static_cast<std::size_t>(tasks));
            ctx.parallel(tasks, [&](index_t t) { ++calls[static_cast<std::size_t>(t)]; });
            for (auto const& c : calls) BOOST_TEST(c == 1);
        }
        ctx.parallel(-3, [&](index_t) { BOOST_ERROR("a negative number of tasks has none"); });
    }
    BOOST_TEST(context<>(0).threads() >= 1);
}

BOOST_AUTO_TEST_CASE(ranges_cover_everything_and_depend_only_on_the_grain) {
    for (int threads : {1, 3}) {
        context<> const ctx(0, threads);
        std::vector<std::atomic<int>> covered(101);
        std::vector<std::atomic<int>> begins(101);
        ctx.parallel_ranges(101, 10, [&](index_t begin, index_t end) {
            ++begins[static_cast<std::size_t>(begin)];
            for (index_t i = begin; i < end; ++i) ++covered[static_cast<std::size_t>(i)];
        });
        for (auto const& c : covered) BOOST_TEST(c == 1);
        for (std::size_t i = 0; i < begins.size(); ++i) BOOST_TEST(begins[i] == (i % 10 == 0 ? 1 : 0));
    }
}

BOOST_AUTO_TEST_CASE(a_task_may_ask_for_its_thread_which_runs_one_at_a_time) {
    for (int const threads : {1, 3}) {
        context<> const ctx(0, threads);
        BOOST_TEST(ctx.threads_for(2) == std::min(threads, 2));
        std::vector<std::atomic<int>> at_work(static_cast<std::size_t>(ctx.threads_for(50)));
        std::atomic<int> together = 0;
        ctx.parallel(50, [&](index_t, int thread) {
            auto& mine = at_work.at(static_cast<std::size_t>(thread));
            if (++mine != 1) ++together;
            --mine;
        });
        ctx.parallel_ranges(50, 7, [&](index_t, index_t, int thread) {
            if (thread >= threads) ++together;
        });
        BOOST_TEST(together == 0);
    }
}

BOOST_AUTO_TEST_CASE(a_parallel_region_inside_another_runs_on_its_thread) {
    context<> const ctx(0, 3);
    std::atomic<int> calls = 0;
    ctx.parallel(4, [&](index_t) { ctx.parallel(5, [&](index_t) { ++calls; }); });
    BOOST_TEST(calls == 20);
}

BOOST_AUTO_TEST_CASE(a_dry_run_runs_nothing) {
    context<> ctx(0, 2);
    BOOST_TEST(!ctx.is_dry_run());
    ctx.set_dry_run(true);
    ctx.parallel(10, [](index_t) { BOOST_ERROR("ran in a dry run"); });
    ctx.set_dry_run(false);
    int calls = 0;
    ctx.parallel(1, [&](index_t) { ++calls; });
    BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(keys_hold_the_seed_the_stream_and_the_step) {
    context<> ctx(9, 1);
    ctx.step = 4;
    key const k = ctx.random(stream::target);
    BOOST_TEST(k.seed == 9U);
    BOOST_TEST(k.step == 4U);
    BOOST_TEST((k.stream == stream::target));
}

#if defined(__SSE__)
BOOST_AUTO_TEST_CASE(denormals_are_flushed_inside_and_kept_outside) {
    std::atomic<int> kept = 0;
    float volatile smallest = std::numeric_limits<float>::min();
    for (int threads : {1, 2}) {
        context<> const ctx(0, threads);
        ctx.parallel(2, [&](index_t) {
            float const half = smallest * 0.5F;
            if (std::bit_cast<std::uint32_t>(half) != 0U) ++kept;
        });
    }
    BOOST_TEST(kept == 0);
    float const half = smallest * 0.5F;
    BOOST_TEST(std::bit_cast<std::uint32_t>(half) != 0U);
}
#endif
