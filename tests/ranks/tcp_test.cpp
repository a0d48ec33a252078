// Ranks that meet by TCP, here each a thread that knows of the others by its socket alone.

#include "calm/ranks/tcp.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/free_port.hpp"
#include "support/sentences.hpp"

using namespace calm;
using calm::detail::tcp_socket;
using calm::test::free_port;
using calm::test::has;

namespace {

using job = std::function<void(tcp_ranks&)>;

// What each of R ranks throws, or "", where f is its job. `change` changes what it is told.
std::vector<std::string> said_by(int R, job const& f, std::function<void(tcp_place&)> const& change = {},
                                 double seconds_to_meet = 60) {
    std::vector<std::string> said(static_cast<std::size_t>(R));
    std::vector<std::thread> all;
    auto const port = free_port();
    for (int r = 0; r < R; ++r)
        all.emplace_back([&, r] {
            auto& says = said[static_cast<std::size_t>(r)];
            std::optional<tcp_ranks> self;
            try {
                tcp_place here{r, R, "127.0.0.1", port, "a job"};
                if (change) change(here);
                self.emplace(here, seconds_to_meet);
                f(*self);
            } catch (error const& why) {
                says = why.what();
                if (self) self->fail(why);
            }
        });
    for (auto& each : all) each.join();
    return said;
}
// Whether f(rank) is true on all of R.
bool holds(int R, std::function<bool(tcp_ranks&)> const& f) {
    std::atomic<int> good = 0;
    for (auto const& each : said_by(R, [&](tcp_ranks& ranks) { good += f(ranks) ? 1 : 0; }))
        if (!each.empty()) BOOST_TEST_MESSAGE(each);
    return good == R;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_ranks_say_to_each_other_arrives) {
    for (int const R : {1, 2, 3, 5})
        BOOST_TEST(holds(R,
                         [&](tcp_ranks& ranks) {
                             int const r = ranks.rank();
                             bool fine = ranks.ranks() == R;
                             for (int from = 0; from < R; ++from) fine &= ranks.broadcast(100 + r, from) == 100 + from;
                             std::vector<int> all(static_cast<std::size_t>(R));
                             ranks.all_gather(std::span<int const>(&r, 1), std::span(all));
                             for (int other = 0; other < R; ++other)
                                 fine &= all[static_cast<std::size_t>(other)] == other;
                             std::array<std::int64_t, 2> counts{r, std::int64_t{1} << (40 + r)};
                             ranks.all_reduce(std::span<std::int64_t>(counts));
                             fine &= counts[0] == R * (R - 1) / 2 && counts[1] == ((std::int64_t{1} << R) - 1) << 40;
                             auto const here = ranks.beside();
                             fine &= here.rank == r && here.ranks == R;
                             ranks.barrier();
                             return fine;
                         }),
                   R << " ranks");
}

// More than the system keeps of a socket, to and from all at once, by several exchanges that are under way.
BOOST_AUTO_TEST_CASE(much_goes_both_ways_at_once_and_in_order) {
    constexpr std::size_t n = 1 << 20, many = 3;
    for (int const R : {2, 3})
        BOOST_TEST(holds(R,
                         [&](tcp_ranks& ranks) {
                             auto const count = static_cast<std::size_t>(R);
                             auto const number = [&](std::size_t exchange, std::size_t from, std::size_t to,
                                                     std::size_t i) {
                                 return static_cast<std::uint32_t>(((exchange * 8 + from) * 8 + to) * n + i);
                             };
                             auto const self = static_cast<std::size_t>(ranks.rank());
                             std::vector<std::vector<std::uint32_t>> sent(many * count), came(many * count);
                             for (std::size_t e = 0; e < many; ++e) {
                                 std::vector<collective::sent> to;
                                 std::vector<collective::received> from;
                                 for (std::size_t d = 0; d < count; ++d) {
                                     auto& out = sent[e * count + d];
                                     auto& in = came[e * count + d];
                                     out.resize(n);
                                     in.resize(n);
                                     for (std::size_t i = 0; i < n; ++i) out[i] = number(e, self, d, i);
                                     to.push_back(std::as_bytes(std::span(out)));
                                     from.push_back(std::as_writable_bytes(std::span(in)));
                                 }
                                 ranks.begin_exchange(to, from);
                             }
                             bool fine = true;
                             for (std::size_t e = 0; e < many; ++e) {
                                 ranks.finish_exchange();
                                 for (std::size_t s = 0; s < count; ++s)
                                     for (std::size_t i = 0; i < n && s != self; ++i)
                                         fine &= came[e * count + s][i] == number(e, s, self, i);
                             }
                             return fine && ranks.bytes_sent() == many * n * 4 * (count - 1);
                         }),
                   R << " ranks");
}

BOOST_AUTO_TEST_CASE(the_failure_of_one_is_heard_by_all) {
    auto const said = said_by(3, [&](tcp_ranks& ranks) {
        ranks.barrier();
        if (ranks.rank() == 1) throw error(errc::data, "no more text");
        ranks.barrier();
    });
    BOOST_TEST(said[0] == "rank 1: no more text");
    BOOST_TEST(said[1] == "no more text");
    BOOST_TEST(said[2] == "rank 1: no more text");
}

// As a process that is killed: the system closes what it had open.
BOOST_AUTO_TEST_CASE(who_has_ended_is_named_at_once) {
    auto const begun = std::chrono::steady_clock::now();
    auto const said = said_by(3, [&](tcp_ranks& ranks) {
        ranks.at_work = true;
        ranks.timeout = 20;
        ranks.steps_done = 7;
        ranks.barrier();
        if (ranks.rank() != 2) ranks.barrier();
    });
    BOOST_TEST(has(said[0], "rank 2 has ended after step 7: expected an answer of each of 3 ranks"), said[0]);
    BOOST_TEST(said[2].empty());
    BOOST_TEST((std::chrono::steady_clock::now() - begun < std::chrono::seconds(15)));  // before anybody is given up
}

// Who works between two exchanges and asks now and then hears of it too.
BOOST_AUTO_TEST_CASE(who_works_hears_that_another_has_ended) {
    auto const said = said_by(2, [&](tcp_ranks& ranks) {
        ranks.barrier();
        while (ranks.is_first()) ranks.hear();
    });
    BOOST_TEST(has(said[0], "rank 1 has ended"), said[0]);
}

BOOST_AUTO_TEST_CASE(who_gives_no_answer_is_named) {
    std::atomic<bool> over = false;
    auto const said = said_by(2, [&](tcp_ranks& ranks) {
        ranks.at_work = true;
        ranks.timeout = 0.2;
        ranks.barrier();
        if (ranks.rank() == 1)
            while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        try {
            ranks.barrier();
        } catch (error const&) {
            over = true;
            throw;
        }
    });
    BOOST_TEST(has(said[0], "rank 1 gave no answer for 0.2 s"), said[0]);
}

BOOST_AUTO_TEST_CASE(sizes_that_differ_are_told) {
    auto const said = said_by(2, [&](tcp_ranks& ranks) {
        std::vector<int> all(ranks.rank() == 0 ? 2 : 4);
        std::vector<int> const own(all.size() / 2);
        ranks.all_gather(std::span<int const>(own), std::span(all));
    });
    for (auto const& each : said)
        BOOST_TEST(
            (has(each, "do all ranks run the same program with the same options and files?") || has(each, "has ended")),
            each);
    BOOST_TEST((has(said[0], "found") || has(said[1], "found")));
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_come_or_do_not_fit_are_told) {
    auto const nothing = [](tcp_ranks&) {};
    auto const alone = said_by(
        1, nothing, [](tcp_place& here) { here.ranks = 3; }, 0.3);
    BOOST_TEST(has(alone[0], "expected 3 ranks to meet at 127.0.0.1:"), alone[0]);
    BOOST_TEST(has(alone[0], "ranks 1 and 2 did not come in time"), alone[0]);
    auto const lost = said_by(
        1, nothing,
        [](tcp_place& here) {
            here = {1, 2, here.host, here.port, here.job};
        },
        0.3);
    BOOST_TEST(has(lost[0], "rank 0 did not come in time"), lost[0]);
    auto const others = said_by(2, nothing, [](tcp_place& here) { here.ranks += here.rank; });
    BOOST_TEST(has(others[0], "expected each of 2 ranks once at 127.0.0.1:"), others[0]);
    BOOST_TEST(has(others[0], "found one that says that it is rank 1 of 3"), others[0]);
    BOOST_TEST(has(others[1], "rank 0 has ended before all ranks had met"), others[1]);
    auto const jobs = said_by(
        2, nothing, [](tcp_place& here) { here.job += here.rank == 1 ? "?" : ""; }, 2);
    BOOST_TEST(has(jobs[0], "rank 1 did not come in time"), jobs[0]);
    auto const nowhere = said_by(1, nothing, [](tcp_place& here) { here = {0, 2, "no.such.host.invalid", 1, ""}; });
    BOOST_TEST(has(nowhere[0], "expected an address of the machine of rank 0, found 'no.such.host.invalid'"),
               nowhere[0]);
    // An address of documentation (RFC 5737), which no machine here has.
    auto const elsewhere = said_by(1, nothing, [](tcp_place& here) { here = {0, 2, "192.0.2.1", 1, ""}; });
    BOOST_TEST(has(elsewhere[0], "expected an address of this machine and a free port to meet the other ranks at"),
               elsewhere[0]);
}

// Strangers who say nothing, or something else, keep nobody from meeting; nobody listens on another interface, nor
// once all have met.
BOOST_AUTO_TEST_CASE(strangers_are_let_alone_and_doors_are_closed) {
    auto const port = free_port();
    auto const at = detail::address_of("127.0.0.1", port), beside = detail::address_of("127.0.0.2", port);
    std::vector<tcp_socket> strangers;
    std::atomic<bool> met = false;
    std::array<std::thread, 2> ranks;
    std::atomic<int> good = 0;
    auto const be = [&](int r) {
        tcp_ranks self({r, 2, "127.0.0.1", port, "a job"}, 60);
        good += self.broadcast(r) == 0 ? 1 : 0;
        while (!met) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    ranks[0] = std::thread(be, 0);
    while (strangers.size() < 3) {
        if (auto one = tcp_socket::connected(at, 1000)) strangers.push_back(std::move(one));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    BOOST_TEST(!tcp_socket::connected(beside, 200));
    std::array<std::byte, 200> garbage{};
    BOOST_TEST(strangers[1].send(std::span(garbage).first(50)).value_or(0) == 50U);
    BOOST_TEST(strangers[2].send(garbage).value_or(0) == 200U);
    ranks[1] = std::thread(be, 1);
    while (good < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    BOOST_TEST(!tcp_socket::connected(at, 200));
    met = true;
    for (auto& each : ranks) each.join();
}
