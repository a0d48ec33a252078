// The emulated device detects at once what goes wrong only sometimes on a GPU: each kind of misuse is made here.
#include "calm/emulated.hpp"

#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "calm/tensor.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t N = 64;
using line = tensor<float, extents<N>, emulated>;

std::vector<float> on_the_host(context<emulated> const& ctx, line const& x) {
    std::vector<float> room;
    auto const all = to_host(ctx, x.view(), room);
    return {all.begin(), all.end()};
}

// The signal that kills a process that calls f; 0 if it exits normally.
template <class F> int signal_of(F const& f) {
    pid_t const child = fork();
    if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL);
        f();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// Thread t of block b writes its number to out[b threads + t + behind].
struct numbering {
    static constexpr int threads = 32;
    struct shared {};
    float* out;
    index_t behind = 0;
    template <class Block> void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) { out[block * threads + t + behind] = static_cast<float>(block * threads + t); });
    }
};

// y[0] = the sum of x[0] .. x[n - 1].
template <class T> struct summing {
    static constexpr int threads = 1;
    struct shared {};
    T const* x;
    index_t n;
    T* y;
    template <class Block> void operator()(Block& b, shared&, index_t) const {
        b.phase([&](int) {
            *y = 0;
            for (index_t i = 0; i < n; ++i) *y += x[i];
        });
    }
};

// Every block updates one number without synchronisation.
struct in_turn {
    static constexpr int threads = 1;
    struct shared {};
    float* out;
    template <class Block> void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int) { *out = *out * 2 + static_cast<float>(block); });
    }
};

// Reads uninitialised shared memory.
struct unset {
    static constexpr int threads = 1;
    struct shared {
        float value;
    };
    float* out;
    template <class Block> void operator()(Block& b, shared& s, index_t) const {
        b.phase([&](int) { *out = s.value; });
    }
};

// A thread reads what another writes to shared memory: in the next phase, or without a barrier in the same one.
struct exchanging {
    static constexpr int threads = 32;
    struct shared {
        float x[threads];
    };
    float* out;
    bool barrier;
    template <class Block> void operator()(Block& b, shared& s, index_t) const {
        auto const write = [&](int t) { s.x[t] = static_cast<float>(t); };
        auto const read = [&](int t) { out[t] = s.x[threads - 1 - t]; };
        if (barrier) {
            b.phase(write);
            b.phase(read);
        } else {
            b.phase([&](int t) {
                write(t);
                read(t);
            });
        }
    }
};

// Reads shared memory before an asynchronous copy to it has completed.
struct too_early {
    static constexpr int threads = 32;
    struct shared {
        float x[threads];
    };
    float const* x;
    float* out;
    template <class Block> void operator()(Block& b, shared& s, index_t) const {
        b.phase([&](int t) { s.x[t] = 0; });
        b.phase([&](int t) { b.copy_async(s.x + t, x + t); });
        b.phase([&](int t) { out[t] = s.x[t]; });
        b.wait_for_copies();
        b.phase([&](int t) { out[threads + t] = s.x[t]; });
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_are_copied_to_the_device_and_back) {
    context<emulated> ctx(0, 2);
    line x;
    BOOST_TEST(on_the_host(ctx, x) == std::vector<float>(N, 0.0F), boost::test_tools::per_element());
    auto given = draws<float>(N, 1);
    copy(ctx, x.view(), vector_view<float const>(given.data(), extents<dyn>(N)));
    auto const want = given;
    given.assign(N, 7);  // the source may be changed
    BOOST_TEST(on_the_host(ctx, x) == want, boost::test_tools::per_element());
    evaluate(ctx, x, x * 2.0);
    BOOST_TEST(copy_to_host(ctx, x.data() + 5) == want[5] * 2);
}

BOOST_AUTO_TEST_CASE(a_dry_run_copies_and_launches_nothing) {
    context<emulated> ctx(0, 1);
    line x;
    ctx.set_dry_run(true);
    auto const before = ctx.counts();
    std::vector<float> const given(N, 3);
    copy(ctx, x.view(), vector_view<float const>(given.data(), extents<dyn>(N)));
    launch(ctx, 2, numbering{x.data()});
    BOOST_TEST(copy_to_host(ctx, x.data()) == 0);
    BOOST_CHECK(ctx.counts() == before);
    ctx.set_dry_run(false);
    BOOST_TEST(on_the_host(ctx, x) == std::vector<float>(N, 0.0F), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(launches_are_counted) {
    context<emulated> ctx(0, 1);
    auto const before = ctx.counts();
    line x;
    std::vector<float> const given(N, 3);
    copy(ctx, x.view(), vector_view<float const>(given.data(), extents<dyn>(N)));
    launch(ctx, 2, numbering{x.data()});
    launch(ctx, 2, numbering{x.data()});
    BOOST_TEST(copy_to_host(ctx, x.data() + 3) == 3);
    auto const asked = ctx.counts() - before;
    BOOST_TEST(asked.allocations == 1);
    BOOST_TEST(asked.uploads == 1);
    BOOST_TEST(asked.launches == 2);
    BOOST_TEST(asked.blocks == 4);
    BOOST_TEST(asked.bytes == (N + 1) * index_t{sizeof(float)});
    BOOST_TEST(asked.waits == 1);
}

// Work for a number of rows that depends on data shows as equal launches with different numbers of blocks.
BOOST_AUTO_TEST_CASE(a_shape_that_follows_from_data_shows_in_the_counts) {
    context<emulated> ctx(0, 1);
    line x;
    tensor<index_t, extents<1>, emulated> found;
    auto const asked_for = [&](index_t rows) {
        fill(ctx, found.view(), rows);
        auto const before = ctx.counts();
        launch(ctx, copy_to_host(ctx, found.data()), numbering{x.data()});
        ctx.wait();
        return ctx.counts() - before;
    };
    auto const of_one = asked_for(1), of_two = asked_for(2);
    BOOST_TEST(of_one.launches == of_two.launches);
    BOOST_CHECK(of_one != of_two);
    BOOST_CHECK(asked_for(2) == of_two);
}

BOOST_AUTO_TEST_CASE(the_host_cannot_read_or_write_its_memory) {
    context<emulated> ctx(0, 1);
    line x;
    launch(ctx, 2, numbering{x.data()});
    BOOST_TEST(signal_of([&] { ctx.wait(); }) == 0);
    BOOST_TEST(signal_of([&] { [[maybe_unused]] float volatile const read = x.data()[1]; }) == SIGSEGV);
    BOOST_TEST(signal_of([&] { *const_cast<float volatile*>(x.data()) = 1; }) == SIGSEGV);
    ctx.wait();  // nor afterwards
    BOOST_TEST(signal_of([&] { [[maybe_unused]] float volatile const read = x.data()[1]; }) == SIGSEGV);
}

// Opening the memory, as tests and debuggers do, completes all enqueued work; enqueuing anything closes it again.
BOOST_AUTO_TEST_CASE(the_host_may_access_its_memory_until_the_first_launch) {
    context<emulated> ctx(0, 1);
    line x;
    auto& device = detail::emulated_device::get();
    auto const touch = [&] { *const_cast<float volatile*>(x.data()) = 1; };
    auto const asked = [&](auto const& ask) {
        device.open();
        BOOST_TEST(signal_of(touch) == 0);
        ask();
        BOOST_TEST(signal_of(touch) == SIGSEGV);
    };
    launch(ctx, 2, numbering{x.data()});
    device.open();
    BOOST_TEST(x.data()[5] == 5);
    x.data()[5] = 7;
    BOOST_TEST(copy_to_host(ctx, x.data() + 5) == 7);
    asked([&] { launch(ctx, 2, numbering{x.data()}); });
    asked([&] { ctx.wait(); });
    asked([&] { line const another; });
    asked([&] { device.close(); });
    std::vector<float> const given(N, 3);
    asked([&] { copy(ctx, x.view(), vector_view<float const>(given.data(), extents<dyn>(N))); });
    asked([&] { fill(ctx, x.view(), 2.0F); });
    BOOST_TEST(opened(x.view())[N - 1] == 2);
    device.close();
}

// The queue runs as late as possible: without a wait the host finds the previous contents.
BOOST_AUTO_TEST_CASE(nothing_runs_before_the_host_waits) {
    context<emulated> ctx(0, 1);
    bool ran = false;
    auto& device = detail::emulated_device::get();
    device.later([&] { ran = true; });
    line x;
    launch(ctx, 2, numbering{x.data()});
    BOOST_TEST(!ran);
    ctx.wait();
    BOOST_TEST(ran);
}

#if defined(__GNUC__) && !defined(__clang__)
BOOST_AUTO_TEST_CASE(a_kernel_with_an_address_of_the_host_is_refused) {
    context<emulated> ctx(0, 1);
    std::vector<float> here(N);
    auto const refused = says(errc::device, "found a host address", "copy the data to the device");
    BOOST_CHECK_EXCEPTION(launch(ctx, 2, numbering{here.data()}), error, refused);
    float on_the_stack[N];
    BOOST_CHECK_EXCEPTION(launch(ctx, 2, numbering{on_the_stack}), error, refused);
    line x;
    launch(ctx, 2, numbering{x.data()});
    launch(ctx, 0, numbering{here.data()});  // runs nothing
    ctx.wait();
}
#endif

BOOST_AUTO_TEST_CASE(copies_of_memory_that_is_not_the_devices_are_refused) {
    context<emulated> ctx(0, 1);
    std::vector<float> here(N), there(N);
    using device_view = vector_view<float, dyn, emulated>;
    extents<dyn> const shape(N);
    auto const refused = says(errc::device, "256 bytes of device memory");
    BOOST_CHECK_EXCEPTION(copy(ctx, device_view(here.data(), shape), vector_view<float const>(there.data(), shape)),
                          error, refused);
    BOOST_CHECK_EXCEPTION(copy(ctx, vector_view<float>(there.data(), shape), device_view(here.data(), shape)), error,
                          refused);
    line x;
    BOOST_CHECK_EXCEPTION(copy(ctx, vector_view<float>(there.data(), shape), device_view(x.data() + 1, shape)), error,
                          refused);
    BOOST_CHECK_EXCEPTION(
        copy(ctx, vector_view<float>(there.data(), extents<dyn>(3)), device_view(x.data(), extents<dyn>(4))), error,
        says(errc::usage, "expected equal sizes"));
}

BOOST_AUTO_TEST_CASE(writes_past_an_array_are_detected) {
    context<emulated> ctx(0, 1);
    // No memory is mapped after a tensor.
    BOOST_TEST(signal_of([&] {
                   line x;
                   launch(ctx, 2, numbering{x.data(), 1});
                   ctx.wait();
               }) == SIGSEGV);
    // A red zone follows every arena allocation.
    auto const x = ctx.workspace.take<float>(extents<N>());
    [[maybe_unused]] auto const next = ctx.workspace.take<float>(extents<N>());
    launch(ctx, 2, numbering{x.data(), 1});
    ctx.workspace.clear();
    BOOST_CHECK_EXCEPTION(ctx.wait(), error,
                          says(errc::device, "wrote past the end of 256 bytes of the arena 'workspace'"));
    auto const again = ctx.workspace.take<float>(extents<N>());
    launch(ctx, 2, numbering{again.data()});
    ctx.workspace.clear();
    ctx.wait();
}

BOOST_AUTO_TEST_CASE_TEMPLATE(reads_past_an_array_are_nan, T, scalars) {
    context<emulated> ctx(0, 1);
    auto const x = ctx.workspace.take<T>(extents<N>());
    auto const next = ctx.workspace.take<T>(extents<1>());
    fill(ctx, x, T{1});
    auto const sum = [&](index_t n) {
        launch(ctx, 1, summing<T>{x.data(), n, next.data()});
        return copy_to_host(ctx, next.data());
    };
    BOOST_TEST(sum(N) == T{N});
    BOOST_TEST(std::isnan(sum(N + 1)));
    // An id read there exceeds every table.
    BOOST_TEST(std::bit_cast<row_id>(detail::emulated_device::red) > 2'000'000'000);
}

BOOST_AUTO_TEST_CASE(unwritten_memory_is_nan) {
    context<emulated> ctx(0, 1);
    {
        arena_scope const scope(ctx.workspace);
        auto const x = ctx.workspace.take<float>(extents<N>());
        fill(ctx, x, 1.0F);
    }
    auto const x = ctx.workspace.take<float>(extents<N>());  // the same address
    BOOST_TEST(std::isnan(copy_to_host(ctx, x.data() + 9)));
    launch(ctx, 1, unset{x.data()});
    BOOST_TEST(std::isnan(copy_to_host(ctx, x.data())));
}

BOOST_AUTO_TEST_CASE(copies_that_a_kernel_does_not_wait_for_are_nan) {
    context<emulated> ctx(0, 1);
    line x, out;
    launch(ctx, 2, numbering{x.data()});
    launch(ctx, 1, too_early{x.data(), out.data()});
    auto const got = on_the_host(ctx, out);
    for (std::size_t t = 0; t < 32; ++t) {
        BOOST_TEST(std::isnan(got[t]));
        BOOST_TEST(got[32 + t] == static_cast<float>(t));
    }
}

// An element not yet written by its neighbour is NaN; which elements these are depends on the thread order.
BOOST_AUTO_TEST_CASE(a_missing_barrier_shows_in_every_order) {
    auto const missing = [](thread_order order, bool barrier) {
        context<emulated> ctx(0, 1);
        ctx.order = order;
        line x;
        launch(ctx, 1, exchanging{x.data(), barrier});
        auto const got = on_the_host(ctx, x);
        std::vector<bool> all;
        for (std::size_t t = 0; t < 32; ++t) {
            all.push_back(std::isnan(got[t]));
            if (!all.back()) BOOST_TEST(got[t] == static_cast<float>(31 - t));
        }
        return all;
    };
    std::vector<std::vector<bool>> found;
    for (auto const order : {thread_order::ascending, thread_order::descending, thread_order::permuted}) {
        auto const with = missing(order, true);
        BOOST_TEST(std::count(with.begin(), with.end(), true) == 0);
        found.push_back(missing(order, false));
        BOOST_TEST(std::count(found.back().begin(), found.back().end(), true) == 16);  // in each pair, the first to run
    }
    BOOST_CHECK((found[0] != found[1] && found[0] != found[2]));
}

BOOST_AUTO_TEST_CASE(blocks_that_depend_on_each_other_show_in_another_order) {
    std::vector<float> found;
    for (auto const order : {thread_order::ascending, thread_order::descending, thread_order::permuted}) {
        context<emulated> ctx(0, 1);
        ctx.order = order;
        line x;
        launch(ctx, 6, in_turn{x.data()});
        found.push_back(copy_to_host(ctx, x.data()));
    }
    BOOST_TEST(found[0] != found[1]);
    BOOST_TEST(found[0] != found[2]);
    BOOST_TEST(found[1] != found[2]);
}

BOOST_AUTO_TEST_CASE(every_order_runs_every_block_once) {
    for (auto const order : {thread_order::ascending, thread_order::descending, thread_order::permuted})
        for (index_t const n : {1, 2, 5, 10, 35, 77}) {
            std::vector<int> seen(static_cast<std::size_t>(n));
            for (index_t i = 0; i < n; ++i)
                ++seen[static_cast<std::size_t>(detail::in_order(order, i, n, detail::factor_for(n)))];
            BOOST_TEST(std::count(seen.begin(), seen.end(), 1) == n);
        }
}
