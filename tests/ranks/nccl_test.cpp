// Ranks whose devices exchange by NCCL: the real `nccl_transport` with a fake library in which threads are ranks, each
// with the emulated device.

#include "calm/ranks/detail/nccl_transport.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "calm/emulated.hpp"
#include "calm/ranks/thread_ranks.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/train/detail/sharded_optimizer.hpp"

#include "support/fake_nccl.hpp"
#include "support/sentences.hpp"
#include "support/terms_of_ranks.hpp"

using namespace calm;
using calm::test::fake_fabric;
using calm::test::fake_nccl;
using calm::test::has;
using calm::test::term;
using calm::test::tree_sum;

namespace {

using transport = nccl_transport<fake_nccl>;

// Each rank sends r + 3 s + 1 numbers to rank s, the last one none to the first, and checks what arrives.
bool test_exchange(process_group& ranks, context<emulated>& ctx) {
    int const R = ranks.ranks(), self = ranks.rank();
    auto const size = [&](int from, int to) { return from == R - 1 && to == 0 ? 0 : index_t{from} + 3 * to + 1; };
    arena_scope const scope(ctx.workspace);
    auto const taken = [&](index_t n) { return ctx.workspace.take<float>(extents<dyn>(n)); };
    std::vector<process_group::sent> to;
    std::vector<process_group::received> from;
    std::vector<vector_view<float, dyn, emulated>> places;
    for (int r = 0; r < R; ++r) {
        auto const out = taken(r == self ? 0 : size(self, r));
        for_each(ctx, out.size(), [p = out.data(), self, r](index_t i) {
            p[i] = static_cast<float>(100 * self + 10 * r) + static_cast<float>(i);
        });
        places.push_back(taken(r == self ? 0 : size(r, self)));
        to.push_back(std::as_bytes(std::span(out.data(), static_cast<std::size_t>(out.size()))));
        from.push_back(
            std::as_writable_bytes(std::span(places.back().data(), static_cast<std::size_t>(places.back().size()))));
    }
    ranks.exchange_on_devices(to, from);
    ranks.wait_on_devices();
    bool good = true;
    std::vector<float> room;
    for (int r = 0; r < R; ++r) {
        auto const came = to_host(ctx, places[static_cast<std::size_t>(r)], room);
        for (std::size_t i = 0; i < came.size(); ++i)
            good &= came[i] == static_cast<float>(100 * r + 10 * self) + static_cast<float>(i);
    }
    return good;
}

// Runs three exchanges, then `more`, on ranks whose NCCL fails; returns the error of each rank.
std::vector<std::string> said_by(fake_fabric& fabric, int R, double timeout,
                                 std::function<void(process_group&)> const& more = {}) {
    std::vector<std::string> said(static_cast<std::size_t>(R), "nothing");
    std::atomic<int> distributed = 0;
    auto const work = [&](process_group& ranks) {
        ranks.timeout = timeout;
        ranks.steps_done = 7;
        context<emulated> ctx(0, 1);
        try {
            transport const devices(ranks, fake_nccl(fabric, ranks.rank()));
            for (int i = 0; i < 3; ++i) static_cast<void>(test_exchange(ranks, ctx));
            if (more) more(ranks);
        } catch (error const& e) {
            said[static_cast<std::size_t>(ranks.rank())] = e.what();
            distributed += e.code() == errc::distributed ? 1 : 0;
            throw;
        }
    };
    BOOST_CHECK_THROW(on_ranks(R, work), error);
    BOOST_TEST(distributed == R);
    return said;
}
// Every communicator that was begun is aborted once, and none is closed.
bool all_aborted(fake_fabric& fabric, int R) {
    bool good = fabric.misuse().empty();
    for (int r = 0; r < R; ++r) good &= fabric.of(r).aborted == fabric.of(r).begun && fabric.of(r).closed == 0;
    return good;
}

// Parameters in device memory: some span several ranges, one is empty.
std::vector<index_t> const sizes{20000, 0, 5, 40001, 3, 16384};
constexpr index_t elements = 20000 + 5 + 40001 + 3 + 16384;

struct device_parts {
    arena<emulated> memory{"parts"};
    std::vector<any_parameter<space<emulated>>> all;

    device_parts() {
        for (auto const size : sizes) {
            extents<dyn> const shape(size);
            all.push_back({"p",
                           {size},
                           memory.take<float>(shape),
                           memory.take<float>(shape),
                           role::weight,
                           false,
                           false,
                           nullptr,
                           nullptr,
                           nullptr});
        }
    }
};
std::vector<float> on_host_of(context<emulated> const& ctx, vector_view<float, dyn, emulated> const& x) {
    std::vector<float> room;
    to_host(ctx, x, room);
    return room;
}

}  // namespace

BOOST_AUTO_TEST_CASE(device_memory_arrives_unchanged) {
    for (int const R : {1, 2, 3, 4}) {
        fake_fabric fabric(R);
        std::vector<int> good(static_cast<std::size_t>(R));
        on_ranks(R, [&](process_group& ranks) {
            context<emulated> ctx(0, 1);
            auto& mine = good[static_cast<std::size_t>(ranks.rank())];
            {
                transport const devices(ranks, fake_nccl(fabric, ranks.rank()));
                mine += ranks.devices == &devices ? 1 : 0;
                for (int i = 0; i < 3; ++i) mine += test_exchange(ranks, ctx) ? 1 : 0;
            }
            mine += ranks.devices == nullptr ? 1 : 0;
        });
        BOOST_TEST(fabric.misuse() == "");
        for (int r = 0; r < R; ++r) {
            auto const found = fabric.of(r);
            BOOST_TEST(good[static_cast<std::size_t>(r)] == 5);
            BOOST_TEST((found.groups == 3 && found.finished == 1 && found.closed == 1 && found.aborted == 0));
        }
    }
}

BOOST_AUTO_TEST_CASE(another_size_than_its_place_goes_nowhere) {
    fake_fabric fabric(3);
    auto const said = said_by(fabric, 3, 20, [](process_group& ranks) {
        std::vector<process_group::sent> to(3);
        std::vector<process_group::received> from(3);
        arena<emulated> memory("numbers");
        auto* const there = reinterpret_cast<std::byte*>(memory.take<float>(extents<dyn>(8)).data());
        if (ranks.rank() == 1) to[2] = {there, 8};
        if (ranks.rank() == 2) from[1] = {there, 12};
        ranks.exchange_on_devices(to, from);
        ranks.wait_on_devices();
    });
    BOOST_TEST(has(said[2], "rank 2 expected 12 bytes from rank 1 after step 7, found 8"), said[2]);
    for (std::size_t const r : {0U, 1U}) BOOST_TEST(has(said[r], "rank 2: rank 2 expected 12 bytes"), said[r]);
    BOOST_TEST(all_aborted(fabric, 3));
    for (int r = 0; r < 3; ++r) BOOST_TEST(fabric.of(r).groups == (r == 2 ? 3 : 4));
}

BOOST_AUTO_TEST_CASE(nccl_errors_are_reported_by_their_rank) {
    for (int const group : {0, 2}) {
        fake_fabric fabric(3);
        fabric.failing = 1;
        fabric.failing_group = group;
        auto const said = said_by(fabric, 3, 20);
        auto const tried = group == 0 ? "begin after step 7" : "begin to send after step 7";
        BOOST_TEST(has(said[1], "rank 1 expected NCCL to " + std::string(tried) + ", found: a cable is out"), said[1]);
        for (std::size_t const r : {0U, 2U}) BOOST_TEST(has(said[r], "rank 1: rank 1 expected NCCL to"), said[r]);
        BOOST_TEST(all_aborted(fabric, 3));
    }
}

BOOST_AUTO_TEST_CASE(a_group_ends_also_where_something_of_it_is_refused) {
    fake_fabric fabric(2);
    fabric.refusing = 0;
    auto const said = said_by(fabric, 2, 20);
    BOOST_TEST(has(said[0], "rank 0 expected NCCL to send and receive after step 7, found: a cable is out"), said[0]);
    BOOST_TEST(has(said[1], "rank 0: rank 0 expected"), said[1]);
    BOOST_TEST(all_aborted(fabric, 2));
}

// When a rank dies, the others would wait in a group that it never joins: they must learn of it at once.
BOOST_AUTO_TEST_CASE(a_rank_that_dies_ends_the_others_at_once) {
    for (int const group : {0, 2}) {
        fake_fabric fabric(3);
        fabric.on_group = [&](int rank, int number) {
            if (rank == 2 && number == group) throw error(errc::distributed, "the power fails");
        };
        auto const said = said_by(fabric, 3, 3600);
        BOOST_TEST(said[2] == "the power fails");
        for (std::size_t const r : {0U, 1U}) BOOST_TEST(said[r] == "rank 2: the power fails");
        BOOST_TEST(all_aborted(fabric, 3));
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_hangs_is_not_waited_for_longer_than_timeout) {
    for (int const group : {0, 2}) {
        fake_fabric fabric(3);
        fabric.on_group = [&](int rank, int number) {
            while (rank == 2 && number == group && fabric.of(0).aborted + fabric.of(1).aborted < 2)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        };
        auto const said = said_by(fabric, 3, 1);
        auto const sentence = std::string("expected NCCL to ") + (group == 0 ? "begin" : "begin to send") +
                              " after step 7, found: no completion for 1 s";
        for (std::size_t const r : {0U, 1U}) BOOST_TEST(has(said[r], sentence), said[r]);
        BOOST_TEST(all_aborted(fabric, 3));
    }
}

BOOST_AUTO_TEST_CASE(messages_that_never_come_are_not_waited_for_longer_than_timeout) {
    fake_fabric fabric(2);
    fabric.never_done = true;
    auto const said = said_by(fabric, 2, 1);
    auto const sentence = "expected NCCL to send and receive after step 7, found: no completion for 1 s";
    BOOST_TEST((has(said[0], sentence) || has(said[1], sentence)), said[0]);
    BOOST_TEST(all_aborted(fabric, 2));
}

// Like sharded_optimizer_test on the CPU, through both transports that devices have.
BOOST_AUTO_TEST_CASE(shards_of_a_device_are_reduced_in_the_tree_and_gathered) {
    std::vector<bool> const marked{true, false, false, true, true, false};
    for (bool const by_nccl : {false, true})
        for (int const R : {2, 3, 4})
            for (index_t const piece : {1000, 16384, 1000000}) {
                fake_fabric fabric(R);
                std::vector<int> good(static_cast<std::size_t>(R));
                auto const before = context<emulated>::counts().launches;
                on_ranks(R, [&](process_group& ranks) {
                    int const r = ranks.rank();
                    context<emulated> const ctx(0, 1);
                    std::optional<transport> devices;
                    if (by_nccl) devices.emplace(ranks, fake_nccl(fabric, r));
                    device_parts own;
                    sharded_optimizer<space<emulated>> shares(ctx, own.all, ranks, piece,
                                                              piece == 16384 ? 30000 : 1000000);
                    // The bytes sent by `bulk`, not counting the messages that announce sizes.
                    auto const bytes_of = [&](auto const& bulk) {
                        auto const sent = ranks.bytes_sent();
                        auto const groups = fabric.of(r).groups;
                        bulk();
                        auto const rounds = static_cast<std::uint64_t>(fabric.of(r).groups - groups);
                        return ranks.bytes_sent() - sent - 8 * rounds * static_cast<std::uint64_t>(R - 1);
                    };
                    std::uint64_t owned = 0, owned_marked = 0;
                    for (std::size_t i = 0; i < sizes.size(); ++i) {
                        auto const n = static_cast<std::uint64_t>(shares.own(i).end - shares.own(i).begin);
                        owned += n;
                        if (marked[i]) owned_marked += n;
                        std::vector<float> terms;
                        for (index_t j = 0; j < sizes[i]; ++j) terms.push_back(term(r, i, j));
                        copy_to_device(ctx, own.all[i].grad.data(), std::span<float const>(terms));
                    }
                    auto const others = static_cast<std::uint64_t>(R - 1);
                    bool fine = bytes_of([&] { shares.sum_gradients(); }) == 4 * (elements - owned);
                    for (std::size_t i = 0; i < sizes.size(); ++i) {
                        auto const part = shares.own(i);
                        auto sums = on_host_of(ctx, own.all[i].grad);
                        for (index_t j = 0; j < sizes[i]; ++j) {
                            bool const mine = j >= part.begin && j < part.end;
                            auto& x = sums[static_cast<std::size_t>(j)];
                            fine &= x == (mine ? tree_sum(0, R, i, j) : 0.0F);
                            x = mine ? 1.0F + term(r, i, j) : -1.0F;
                        }
                        copy_to_device(ctx, own.all[i].value.data(), std::span<float const>(sums));
                    }
                    fine &= bytes_of([&] { shares.all_gather_values(); }) == 4 * owned * others;
                    fine &= bytes_of([&] { shares.all_gather_gradients(marked); }) == 4 * owned_marked * others;
                    shares.require_same_settings({});
                    for (std::size_t i = 0; i < sizes.size(); ++i) {
                        auto const part = shares.own(i);
                        auto const values = on_host_of(ctx, own.all[i].value);
                        auto const sums = on_host_of(ctx, own.all[i].grad);
                        for (index_t j = 0; j < sizes[i]; ++j) {
                            auto const at = static_cast<std::size_t>(j);
                            bool const mine = j >= part.begin && j < part.end;
                            fine &= values[at] > 1.0F && (!mine || values[at] == 1.0F + term(r, i, j));
                            fine &= sums[at] == (mine || marked[i] ? tree_sum(0, R, i, j) : 0.0F);
                        }
                    }
                    good[static_cast<std::size_t>(r)] = fine ? 1 : 0;
                });
                BOOST_TEST(std::ranges::count(good, 1) == R, R << " ranks, pieces of " << piece);
                // Two kernels per bulk, however many tensors there are.
                if (piece == 1000000) BOOST_TEST(context<emulated>::counts().launches - before <= 3 * 2 * R);
                BOOST_TEST(fabric.misuse() == "");
                for (int r = 0; r < R; ++r) BOOST_TEST((fabric.of(r).groups > 0) == by_nccl);
            }
}
