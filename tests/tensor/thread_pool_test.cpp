// Which thread runs which task: the tasks of a delayed thread are run by others.

#include "calm/tensor/detail/core/thread_pool.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "calm/tensor/core/context.hpp"
#include "support/memory_of_process.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

// The results of a job are visible when it returns, and the caller's earlier writes are visible to the job.
BOOST_AUTO_TEST_CASE(jobs_follow_one_another) {
    context<> const ctx(0, 3);
    std::vector<index_t> numbers(64);
    bool good = true;
    for (index_t job = 0; job < 5000; ++job) {
        index_t const now = job;
        ctx.parallel(64, [&](index_t task) { numbers[static_cast<std::size_t>(task)] += now + task; });
        for (index_t task = 0; task < 64; task += 21)
            good = good && numbers[static_cast<std::size_t>(task)] == job * (job + 1) / 2 + task * (job + 1);
    }
    BOOST_TEST(good);
}

BOOST_AUTO_TEST_CASE(tasks_side_by_side_are_one_thread_s) {
    context<> const ctx(0, 2);
    std::atomic<bool> second_has_begun = false;
    std::array<std::atomic<int>, 10> by{};
    ctx.parallel(10, [&](index_t task, int thread) {
        by[static_cast<std::size_t>(task)] = thread;
        if (thread == 1) second_has_begun = true;
        while (!second_has_begun) std::this_thread::yield();  // both run their first tasks
    });
    BOOST_TEST(by[0].load() == 0);  // not checked inside tasks: Boost.Test is for one thread
    BOOST_TEST(by[5].load() == 1);
}

// One thread stays at its first task until the other has run all remaining tasks, including the first thread's share.
BOOST_AUTO_TEST_CASE(a_thread_that_is_held_up_leaves_its_tasks_to_others) {
    constexpr index_t tasks = 41;
    for (int const slow : {0, 1}) {
        context<> const ctx(0, 2);
        std::atomic<index_t> done = 0;
        std::atomic<bool> held = false;
        ctx.parallel(tasks, [&](index_t, int thread) {
            if (thread == slow)
                for (held = true; done < tasks - 1;) std::this_thread::yield();
            else
                while (!held) std::this_thread::yield();
            ++done;
        });
        BOOST_TEST(done.load() == tasks);
    }
}

// Each task is longer than a worker's time slice; the caller stays at its first until the worker has run ten.
BOOST_AUTO_TEST_CASE(a_worker_whose_turn_is_over_comes_back) {
    constexpr std::size_t tasks = 40;
    context<> const ctx(0, 2);
    std::array<std::atomic<int>, tasks> done{};
    std::atomic<int> by_the_worker = 0;
    ctx.parallel(tasks, [&](index_t task, int thread) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++done[static_cast<std::size_t>(task)];
        by_the_worker += thread;
        while (thread == 0 && by_the_worker < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    for (auto const& times : done) BOOST_TEST(times.load() == 1);
}

BOOST_AUTO_TEST_CASE(teams_come_and_go) {
    std::atomic<int> done = 0;
    for (int i = 0; i < 200; ++i) {
        context<> const ctx(0, 1 + i % 4);
        if (i % 3 != 0) ctx.parallel(5, [&](index_t) { ++done; });
    }
    BOOST_TEST(done.load() == 133 * 5);
}

BOOST_AUTO_TEST_CASE(more_threads_than_the_system_gives_are_refused) {
    pid_t const child = ::fork();
    if (child == 0) {
        rlimit const limit{data_of_process() + (rlim_t{64} << 20), RLIM_INFINITY};  // a stack takes eight megabytes
        ::setrlimit(RLIMIT_DATA, &limit);
        auto const said = usage_sentence([] { context<>(0, 1000).parallel(1000, [](index_t) {}); });
        ::_exit(has(said, "calm: expected 1000 threads, but the system gives ") && has(said, "ask for fewer") ? 0 : 1);
    }
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 0);
}
