// Ranks that meet by TCP. Here each is a thread that knows the others only through its sockets.

#include "calm/ranks/tcp.hpp"

#include <sys/resource.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/free_port.hpp"
#include "support/sentences.hpp"

using namespace calm;
using calm::detail::tcp_socket;
using calm::test::free_port;
using calm::test::has;

namespace {

using job = std::function<void(tcp_ranks&)>;

// Runs f on R ranks and returns what each throws, or "". `change` alters a rank's settings.
std::vector<std::string> said_by(int R, job const& f, std::function<void(tcp_endpoint&)> const& change = {},
                                 tcp_limits const& limits = {.meet = 60}) {
    std::vector<std::string> said(static_cast<std::size_t>(R));
    std::vector<std::thread> all;
    auto const port = free_port();
    for (int r = 0; r < R; ++r)
        all.emplace_back([&, r] {
            auto& says = said[static_cast<std::size_t>(r)];
            std::optional<tcp_ranks> self;
            try {
                tcp_endpoint here{r, R, "127.0.0.1", port, "a job"};
                if (change) change(here);
                self.emplace(here, limits);
                f(*self);
            } catch (error const& why) {
                says = why.what();
                if (self) self->fail(why);
            }
        });
    for (auto& each : all) each.join();
    return said;
}
// In place of an HMAC; apps/ranks_secret tests openssl_mac.
tcp_mac hashed(std::span<std::byte const> key, std::span<std::byte const> message) {
    sha256 digest;
    for (auto const part : {key, message}) digest.add({reinterpret_cast<char const*>(part.data()), part.size()});
    auto const text = digest.hex();
    tcp_mac made;
    std::memcpy(made.data(), text.data(), made.size());
    return made;
}
void with_secret(tcp_endpoint& here) {
    here.secret = "what only ranks of this job know";
    here.mac = hashed;
}
tcp_endpoint place_at(std::uint16_t port, int rank, int ranks, std::string const& build = "") {
    tcp_endpoint here{rank, ranks, "127.0.0.1", port, "a job"};
    here.build = build;
    with_secret(here);
    return here;
}
// Starts one rank in its own thread. The future has its error message, or "".
std::future<std::string> begun(tcp_endpoint const& here, tcp_limits const& limits, job const& f) {
    return std::async(std::launch::async, [=]() -> std::string {
        std::optional<tcp_ranks> self;
        try {
            f(self.emplace(here, limits));
        } catch (error const& why) {
            if (self) self->fail(why);
            return why.what();
        }
        return "";
    });
}
// Both ends of a connection.
std::pair<tcp_socket, tcp_socket> connection() {
    auto const door = tcp_socket::listening(detail::addresses_of("127.0.0.1", 0).front());
    auto one = tcp_socket::connected(door.here(), 10'000);
    tcp_socket other;
    while (!other) other = door.accept();
    return {std::move(one), std::move(other)};
}
// Rank 0 of two, and rank 1's end of the connection: rank 1 has joined but does not follow the protocol further.
std::pair<tcp_socket, std::future<std::string>> joined(tcp_limits const& limits, job const& f) {
    auto place = place_at(free_port(), 0, 2);
    auto first = begun(place, limits, f);
    place.rank = 1;
    detail::tcp_rendezvous rendezvous(place, limits);
    auto all = std::move(rendezvous).meet();
    return {std::move(all[0]), std::move(first)};
}
// Waits until the other end closes; false after a minute.
bool ends(tcp_socket const& one) {
    std::array<std::byte, 256> bytes;
    for (int i = 0; i < 60'000; ++i) {
        if (!one.receive(bytes)) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}
// Whether f is true on all R ranks.
bool holds(int R, std::function<bool(tcp_ranks&)> const& f) {
    std::atomic<int> good = 0;
    for (auto const& each : said_by(R, [&](tcp_ranks& ranks) { good += f(ranks) ? 1 : 0; }))
        if (!each.empty()) BOOST_TEST_MESSAGE(each);
    return good == R;
}

}  // namespace

BOOST_AUTO_TEST_CASE(messages_between_ranks_arrive) {
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
                             auto const here = ranks.local_rank();
                             fine &= here.rank == r && here.ranks == R;
                             ranks.barrier();
                             return fine;
                         }),
                   R << " ranks");
}

// More than socket buffers hold, in both directions at once, in several exchanges in flight.
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
                                 std::vector<process_group::sent> to;
                                 std::vector<process_group::received> from;
                                 for (std::size_t d = 0; d < count; ++d) {
                                     auto& out = sent[e * count + d];
                                     auto& in = came[e * count + d];
                                     out.resize(n);
                                     in.resize(n);
                                     for (std::size_t i = 0; i < n; ++i) out[i] = number(e, self, d, i);
                                     to.push_back(std::as_bytes(std::span(out)));
                                     from.push_back(std::as_writable_bytes(std::span(in)));
                                 }
                                 ranks.start_exchange(to, from);
                             }
                             bool fine = true;
                             for (std::size_t e = 0; e < many; ++e) {
                                 ranks.wait_exchange();
                                 for (std::size_t s = 0; s < count; ++s)
                                     for (std::size_t i = 0; i < n && s != self; ++i)
                                         fine &= came[e * count + s][i] == number(e, s, self, i);
                             }
                             return fine && ranks.bytes_sent() == many * n * 4 * (count - 1);
                         }),
                   R << " ranks");
}

BOOST_AUTO_TEST_CASE(every_rank_receives_the_failure_of_one) {
    auto const said = said_by(3, [&](tcp_ranks& ranks) {
        ranks.barrier();
        if (ranks.rank() == 1) throw error(errc::data, "no more text");
        ranks.barrier();
    });
    BOOST_TEST(said[0] == "rank 1: no more text");
    BOOST_TEST(said[1] == "no more text");
    BOOST_TEST(said[2] == "rank 1: no more text");
}

// Like a killed process, whose sockets the system closes.
BOOST_AUTO_TEST_CASE(a_rank_that_has_ended_is_named_at_once) {
    auto const said = said_by(3, [&](tcp_ranks& ranks) {
        ranks.timeout_active = true;
        ranks.timeout = 3600;  // no timeout
        ranks.steps_done = 7;
        ranks.barrier();
        if (ranks.rank() != 2) ranks.barrier();
    });
    BOOST_TEST(has(said[0], "rank 2 has ended after step 7: expected an answer from each of 3 ranks"), said[0]);
    BOOST_TEST(said[2].empty());
}

// A rank that works between exchanges and polls now and then learns of it too.
BOOST_AUTO_TEST_CASE(a_working_rank_notices_that_another_has_ended) {
    auto const said = said_by(2, [&](tcp_ranks& ranks) {
        ranks.barrier();
        while (ranks.is_first()) ranks.poll_failures();
    });
    BOOST_TEST(has(said[0], "rank 1 has ended"), said[0]);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_answer_is_named) {
    std::atomic<bool> over = false;
    auto const said = said_by(2, [&](tcp_ranks& ranks) {
        ranks.timeout_active = true;
        ranks.barrier();
        ranks.timeout = 0.2;
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

BOOST_AUTO_TEST_CASE(different_sizes_are_reported) {
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

BOOST_AUTO_TEST_CASE(missing_ranks_are_reported) {
    auto const nothing = [](tcp_ranks&) {};
    auto const alone = said_by(1, nothing, [](tcp_endpoint& here) { here.ranks = 3; }, {.meet = 0.3});
    BOOST_TEST(has(alone[0], "expected 3 ranks to meet at 127.0.0.1:"), alone[0]);
    BOOST_TEST(has(alone[0], "ranks 1 and 2 did not come in time"), alone[0]);
    auto const lost = said_by(1, nothing,
                              [](tcp_endpoint& here) {
                                  here = {1, 2, here.host, here.port, here.job};
                              },
                              {.meet = 0.3});
    BOOST_TEST(has(lost[0], "rank 0 did not come in time"), lost[0]);
}

BOOST_AUTO_TEST_CASE(invalid_addresses_are_reported_with_their_option) {
    auto const at = [](std::string const& host, bool insecure) {
        return said_by(
            1, [](tcp_ranks&) {},
            [&](tcp_endpoint& here) {
                here = {0, 2, host, 1, "a job"};
                here.insecure = insecure;
                here.host_source = "MASTER_ADDR";
            })[0];
    };
    auto const nowhere = at("no.such.host.invalid", true);
    BOOST_TEST(has(nowhere, "expected in MASTER_ADDR a name or an address of the machine of rank 0, found "
                            "'no.such.host.invalid'"),
               nowhere);
    // An address for documentation (RFC 5737), which no machine here has.
    auto const elsewhere = at("192.0.2.1", true);
    BOOST_TEST(has(elsewhere, "expected an address of this machine, where rank 0 meets the other ranks, found "
                              "192.0.2.1:1 (MASTER_ADDR, "),
               elsewhere);
    auto const open = at("192.0.2.1", false);
    BOOST_TEST(has(open, "expected a secret for the ranks (tcp_endpoint::secret), because they meet at 192.0.2.1:1"),
               open);
    BOOST_TEST(has(open, "which other machines may reach, found none"), open);
    BOOST_TEST(has(at("", true), "expected in MASTER_ADDR"));
}

// All addresses of a name are tried, with or without brackets.
BOOST_AUTO_TEST_CASE(ranks_meet_by_any_address_of_rank_0) {
    BOOST_TEST(address_text(detail::addresses_of("[::1]", 7).front()) == "[::1]:7");
    auto const all = detail::addresses_of("localhost", 7);
    BOOST_TEST(std::ranges::all_of(all, detail::is_loopback));
    for (auto const& one : all) {
        auto const number = address_text(one).substr(0, address_text(one).rfind(':'));
        if (!tcp_socket::listening(detail::addresses_of(number, 0).front())) continue;  // no IPv6 here
        auto const said = said_by(
            3, [](tcp_ranks& ranks) { ranks.barrier(); },
            [&](tcp_endpoint& here) { here.host = here.rank == 1 ? number : "localhost"; });
        for (auto const& each : said) BOOST_TEST(each.empty(), each);
    }
}

BOOST_AUTO_TEST_CASE(ranks_with_a_secret_meet) {
    auto const said = said_by(
        3, [](tcp_ranks& ranks) { ranks.barrier(); }, [](tcp_endpoint& here) { with_secret(here); });
    for (auto const& each : said) BOOST_TEST(each.empty(), each);
}

// A guest that is not a rank of the job is refused without disturbing others, and learns the reason if it may. Rank 0
// keeps waiting for its own ranks and reports a refusal once.
BOOST_AUTO_TEST_CASE(only_a_process_that_is_no_rank_is_refused) {
    auto const port = free_port();
    std::mutex mutex;
    std::vector<std::string> heard;
    auto place = place_at(port, 0, 2);
    place.build = "one build";
    place.log = [&](std::string const& sentence) {
        std::lock_guard const lock(mutex);
        heard.push_back(sentence);
    };
    auto first = begun(place, {.meet = 60}, [](tcp_ranks& ranks) { ranks.barrier(); });
    // Joins as a changed rank 1 and returns its error.
    auto const said_to = [&](std::function<void(tcp_endpoint&)> const& change) {
        auto guest = place_at(port, 1, 2);
        guest.build = "one build";
        change(guest);
        return begun(guest, {.meet = 60, .elsewhere = 0}, [](tcp_ranks&) {}).get();
    };
    // Rank 0 may not listen yet.
    while (!tcp_socket::connected(detail::addresses_of("127.0.0.1", port).front(), 1000))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto const where = "found at 127.0.0.1:" + std::to_string(port) + ": ";
    auto const check = [&](std::string const& says, std::string const& expected) {
        BOOST_TEST(has(says, where + expected), says);
    };
    check(said_to([](tcp_endpoint& p) { p.job = "another"; }), "it is a rank of another job");
    check(said_to([](tcp_endpoint& p) { p.secret = ""; }), "it is a rank with a secret, but this rank has none");
    check(said_to([](tcp_endpoint& p) { p.secret += "!"; }), "it has another secret than this rank");
    {
        std::lock_guard const lock(mutex);
        BOOST_TEST(heard.empty());  // nothing is reported about strangers
    }
    check(said_to([](tcp_endpoint& p) { p.ranks = 3; }), "it is rank 0 of 2, and this one is rank 1 of 3");
    check(said_to([](tcp_endpoint& p) { p.build = "another"; }),
          "it was compiled as 'one build', and this one as 'another'");
    auto second = begun(place_at(port, 1, 2, "one build"), {.meet = 60}, [](tcp_ranks& ranks) { ranks.barrier(); });
    BOOST_TEST(second.get() == "");
    BOOST_TEST(first.get() == "");
    BOOST_REQUIRE(heard.size() == 2U);
    BOOST_TEST(has(heard[0], "refused a process that says it is rank 1 of 3"), heard[0]);
    BOOST_TEST(has(heard[1], "compiled as 'another', not 'one build'"), heard[1]);
}

// A rank's number belongs to one process, whichever comes first.
BOOST_AUTO_TEST_CASE(a_rank_that_comes_twice_is_refused) {
    auto const port = free_port();
    std::array<std::future<std::string>, 2> both;
    for (auto& each : both)
        each = begun(place_at(port, 1, 3), {.meet = 60, .elsewhere = 0}, [](tcp_ranks& ranks) { ranks.barrier(); });
    auto first = begun(place_at(port, 0, 3), {.meet = 60}, [](tcp_ranks& ranks) { ranks.barrier(); });
    while (both[0].wait_for(std::chrono::milliseconds(1)) != std::future_status::ready &&
           both[1].wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    }
    auto third = begun(place_at(port, 2, 3), {.meet = 60}, [](tcp_ranks& ranks) { ranks.barrier(); });
    auto const one = both[0].get(), other = both[1].get();
    BOOST_TEST((one.empty() || other.empty()));
    BOOST_TEST(has(one + other, "it already has a rank 1: each rank number is one process"), one + other);
    BOOST_TEST(first.get() == "");
    BOOST_TEST(third.get() == "");
}

// A process that listens in place of rank 0 must prove that it has the secret too.
BOOST_AUTO_TEST_CASE(a_false_rank_0_is_refused) {
    auto const port = free_port();
    auto const door = tcp_socket::listening(detail::addresses_of("127.0.0.1", port).front());
    std::jthread const liar([&](std::stop_token const& over) {
        while (!over.stop_requested()) {
            auto const guest = door.accept();
            if (!guest) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (!guest) continue;
            auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
            detail::tcp_greeting said{};
            tcp_mac proof{};
            detail::tcp_challenge challenge{detail::tcp_magic, said.build, {}, 0, 2, 1, detail::tcp_answer::welcome};
            detail::tcp_verdict const verdict{{}, detail::tcp_answer::welcome};
            detail::receive_all(guest, std::as_writable_bytes(std::span(&said, 1)), end);
            detail::send_all(guest, detail::bytes_of(challenge), end);
            detail::receive_all(guest, proof, end);
            detail::send_all(guest, detail::bytes_of(verdict), end);
        }
    });
    auto const said = begun(place_at(port, 1, 2), {.meet = 60, .elsewhere = 0}, [](tcp_ranks&) {}).get();
    BOOST_TEST(has(said, "it cannot prove that it has the secret"), said);
}

// A relay between two ranks has another address than they have, so its proof fails.
BOOST_AUTO_TEST_CASE(a_proof_cannot_be_passed_on) {
    auto const port = free_port();
    auto const rank_0 = detail::addresses_of("127.0.0.1", port).front();
    auto const door = tcp_socket::listening(detail::addresses_of("127.0.0.2", port).front());
    BOOST_REQUIRE(door);
    std::jthread const between([&](std::stop_token const& over) {
        while (!over.stop_requested()) {
            auto const guest = door.accept();
            auto const on = guest ? tcp_socket::connected(rank_0, 1000) : tcp_socket();
            std::array<std::byte, 4096> bytes;
            auto const pass = [&](tcp_socket const& from, tcp_socket const& to) {
                auto const came = from.receive(bytes);
                if (came && *came > 0)
                    detail::send_all(to, std::span(bytes).first(*came),
                                     std::chrono::steady_clock::now() + std::chrono::seconds(20));
                return came.has_value();
            };
            while (on && !over.stop_requested() && pass(guest, on) && pass(on, guest))
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    auto first = begun(place_at(port, 0, 2), {.meet = 60}, [](tcp_ranks& ranks) { ranks.barrier(); });
    while (!tcp_socket::connected(rank_0, 1000)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto misled = place_at(port, 1, 2);
    misled.host = "127.0.0.2";
    auto const said = begun(misled, {.meet = 60, .elsewhere = 0, .ports = 1}, [](tcp_ranks&) {}).get();
    BOOST_TEST(has(said, "it has another secret than this rank"), said);
    auto second = begun(place_at(port, 1, 2), {.meet = 60}, [](tcp_ranks& ranks) { ranks.barrier(); });
    BOOST_TEST(second.get() == "");
    BOOST_TEST(first.get() == "");
}

// Strangers that send nothing or garbage do not keep the ranks from meeting. No other interface is listened on, and
// none at all once all ranks have met.
BOOST_AUTO_TEST_CASE(foreign_connections_are_ignored_and_sockets_closed) {
    auto const port = free_port();
    auto const at = detail::addresses_of("127.0.0.1", port).front(),
               beside = detail::addresses_of("127.0.0.2", port).front();
    std::vector<tcp_socket> strangers;
    std::atomic<bool> met = false;
    std::array<std::future<std::string>, 2> ranks;
    std::atomic<int> good = 0;
    auto const be = [&](tcp_ranks& self) {
        good += self.broadcast(self.rank()) == 0 ? 1 : 0;
        while (!met) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    ranks[0] = begun(place_at(port, 0, 2), {.meet = 60, .answer = 60}, be);
    auto const connect = [&] {
        for (auto const before = strangers.size(); strangers.size() == before;)
            if (auto one = tcp_socket::connected(at, 1000)) strangers.push_back(std::move(one));
    };
    // As many as may wait at once, and one more, for which the first is dropped.
    for (int i = 0; i < 2 + 32 + 1; ++i) connect();
    BOOST_TEST(ends(strangers[0]));
    BOOST_TEST(!tcp_socket::connected(beside, 200));
    std::array<std::byte, 300> garbage{};
    BOOST_TEST(strangers[1].send(std::span(garbage).first(50)).value_or(0) == 50U);
    BOOST_TEST(strangers[2].send(garbage).value_or(0) == 300U);
    BOOST_TEST(ends(strangers[2]));
    ranks[1] = begun(place_at(port, 1, 2), {.meet = 60}, be);
    while (good < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    BOOST_TEST(!tcp_socket::connected(at, 200));
    met = true;
    for (auto& each : ranks) BOOST_TEST(each.get() == "");
}

// A guest whose message is complete but late is not admitted: its connection is closed.
BOOST_AUTO_TEST_CASE(a_guest_whose_time_is_over_is_not_let_in) {
    for (bool const in_time : {true, false}) {
        auto [guest, host] = connection();
        detail::tcp_identity const self{0, 2, std::string(64, 'a'), "", "", nullptr};
        detail::tcp_greeting const says{detail::tcp_magic, detail::padded<64>(self.job), {}, {}, 1, 2, 0, 7, 0};
        std::array<std::byte, sizeof says + sizeof(tcp_mac)> all{};
        std::memcpy(all.data(), &says, sizeof says);
        BOOST_TEST(guest.send(all).value_or(0) == all.size());
        auto const now = std::chrono::steady_clock::now();
        detail::tcp_guest one(std::move(host), now + std::chrono::seconds(in_time ? 60 : -1));
        auto state = one.advance(self);
        while (state == detail::tcp_guest::state::waiting) state = one.advance(self);
        BOOST_TEST((state == (in_time ? detail::tcp_guest::state::trusted : detail::tcp_guest::state::refused)));
    }
}

BOOST_AUTO_TEST_CASE(a_guest_that_is_silent_is_closed) {
    auto const port = free_port();
    auto first = begun(place_at(port, 0, 2), {.meet = 60, .answer = 0.05}, [](tcp_ranks&) {});
    tcp_socket silent;
    while (!silent) silent = tcp_socket::connected(detail::addresses_of("127.0.0.1", port).front(), 1000);
    BOOST_TEST(ends(silent));
    BOOST_TEST(begun(place_at(port, 1, 2), {.meet = 60}, [](tcp_ranks&) {}).get() == "");
    BOOST_TEST(first.get() == "");
}

// Before work begins, a rank is waited for as long as its heartbeats arrive.
BOOST_AUTO_TEST_CASE(a_rank_that_joined_and_is_silent_is_named) {
    auto [rank_1, first] = joined({.meet = 60, .beat = 0.01}, [](tcp_ranks& ranks) {
        ranks.timeout = 0.2;
        ranks.barrier();
    });
    auto const said = first.get();
    BOOST_TEST(has(said, "rank 1 gave no answer for 0.2 s"), said);
}

BOOST_AUTO_TEST_CASE(signs_of_life_are_no_messages) {
    auto [a, b] = connection();
    detail::tcp_peer one(std::move(a)), other(std::move(b));
    auto const heard = other.last_heard();
    one.send_beat();
    one.send_beat();  // one pending beat is enough
    BOOST_TEST(one.flush());
    while (other.last_heard() == heard) BOOST_TEST((other.drain() == detail::tcp_peer::event::none));
    BOOST_TEST(one.messages_sent() == 0U);
    BOOST_TEST(other.messages_received() == 0U);
    int number = 7, place = 0;
    one.send(std::as_bytes(std::span(&number, 1)));
    other.expect(std::as_writable_bytes(std::span(&place, 1)));
    BOOST_TEST(one.flush());
    while (other.is_expecting()) BOOST_TEST((other.drain() == detail::tcp_peer::event::none));
    BOOST_TEST(place == 7);
}

// However another rank describes its failure, this rank fails with a valid status and a text that is safe for a
// terminal.
BOOST_AUTO_TEST_CASE(only_a_well_formed_failure_message_is_reported) {
    auto const told = [](std::string const& bytes, std::uint32_t kind) {
        std::optional<errc> code;
        auto [rank_1, first] = joined({.meet = 60}, [&](tcp_ranks& ranks) {
            try {
                ranks.barrier();
            } catch (error const& why) {
                code = why.code();
                throw;
            }
        });
        struct {
            std::uint64_t size;
            std::uint32_t what, unused;
        } const head{bytes.size(), kind, 0};
        std::string all(reinterpret_cast<char const*>(&head), sizeof head);
        all += bytes;
        BOOST_TEST(rank_1.send(std::as_bytes(std::span(all))).value_or(0) == all.size());
        auto const said = first.get();
        BOOST_REQUIRE(code);
        return std::pair(*code, said);
    };
    for (int const code : {0, 1, 12, 100, 200, 255}) {
        auto const [is, said] = told(std::string(1, static_cast<char>(code)) + "hello", 1);
        BOOST_TEST((is == errc::distributed));
        BOOST_TEST(said == "rank 1: hello");
    }
    auto const [is, said] = told("\4one\x1b[2J\ntwo", 1);
    BOOST_TEST((is == errc::data));
    BOOST_TEST(said == "rank 1: one\\x1b[2J\ntwo");
    BOOST_TEST(told("\4", 1).second == "rank 1: it cannot continue, and gives no reason");
    BOOST_TEST(has(told("", 1).second, "expected messages of rank 1, found bytes that no rank sends"));
    BOOST_TEST(has(told(std::string(5000, 'a'), 1).second, "found bytes that no rank sends"));
    BOOST_TEST(has(told("1", 2).second, "found bytes that no rank sends"));
    BOOST_TEST(has(told("", 77).second, "found bytes that no rank sends"));
    BOOST_TEST(has(told("four", 0).second, "rank 0 expected 0 bytes from rank 1, found 4"));
}

BOOST_AUTO_TEST_CASE(as_many_files_are_allowed_as_ranks_need) {
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 100;
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    auto const said = said_by(2, [](tcp_ranks& ranks) { ranks.barrier(); });
    for (auto const& each : said) BOOST_TEST(each.empty(), each);
    rlimit now{};
    BOOST_TEST(::getrlimit(RLIMIT_NOFILE, &now) == 0);
    BOOST_TEST(now.rlim_cur == 2U * 2 + 64 + 128);
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (before.rlim_max > 2'000'000'000) return;
    auto const many = said_by(
        1, [](tcp_ranks&) {}, [](tcp_endpoint& here) { here.ranks = 1'000'000'000; });
    BOOST_TEST(has(many[0], "expected to be allowed 2000000192 open files, for 1000000000 ranks, found at most "),
               many[0]);
}

BOOST_AUTO_TEST_CASE(a_socket_that_is_connected_to_itself_is_known) {
    auto const at = detail::addresses_of("127.0.0.1", free_port()).front();
    tcp_socket const one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    BOOST_REQUIRE(::bind(one.number(), at.get(), at.size) == 0);
    BOOST_REQUIRE(::connect(one.number(), at.get(), at.size) == 0);
    BOOST_TEST(one.is_own_end());
    auto [a, b] = connection();
    BOOST_TEST(!a.is_own_end());
    BOOST_TEST(!b.is_own_end());
}

// Rank 0 takes the next port and reports it; the others find it there.
BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_passed_over) {
    auto const port = free_port();
    auto const taken = tcp_socket::listening(detail::addresses_of("127.0.0.1", port).front());
    std::string heard;
    auto place = place_at(port, 0, 2);
    place.log = [&](std::string const& sentence) { heard = sentence; };
    auto first = begun(place, {.meet = 60, .answer = 0.1}, [](tcp_ranks& ranks) { ranks.barrier(); });
    auto second = begun(place_at(port, 1, 2), {.meet = 60, .answer = 0.1}, [](tcp_ranks& ranks) { ranks.barrier(); });
    BOOST_TEST(first.get() == "");
    BOOST_TEST(second.get() == "");
    BOOST_TEST(has(heard, "port " + std::to_string(port) +
                              " is taken: it does not answer a greeting; rank 0 listens at port "),
               heard);
    auto const none = begun(place_at(port, 0, 2), {.meet = 60, .answer = 0.1, .ports = 1}, [](tcp_ranks&) {}).get();
    BOOST_TEST(has(none, "expected a free port from " + std::to_string(port) + " to " + std::to_string(port)), none);
    BOOST_TEST(has(none, "Give another port (the port)"), none);
}

// If something that is not a rank listens in place of rank 0, the wait is shorter than for a rank.
BOOST_AUTO_TEST_CASE(a_rank_that_finds_another_service_reports_it) {
    auto const found = [](double seconds, std::function<void(tcp_socket const&)> const& answer) {
        auto const port = free_port();
        auto const door = tcp_socket::listening(detail::addresses_of("127.0.0.1", port).front());
        std::jthread const stranger([&](std::stop_token const& over) {
            std::vector<tcp_socket> guests;
            while (!over.stop_requested()) {
                auto one = door.accept();
                if (!one) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                if (!one) continue;
                answer(one);
                if (answer) guests.push_back(std::move(one));
            }
        });
        std::string heard;
        auto place = place_at(port, 1, 2);
        place.port_source = "MASTER_PORT";
        place.log = [&](std::string const& sentence) { heard = sentence; };
        auto said = begun(place, {.meet = 60, .answer = seconds, .elsewhere = 0}, [](tcp_ranks&) {}).get();
        BOOST_TEST(has(heard, "; waits for rank 0 at 127.0.0.1:" + std::to_string(port)), heard);
        BOOST_TEST(has(said, "MASTER_PORT"), said);
        return said;
    };
    auto const say = [](std::size_t bytes) {
        return [bytes](tcp_socket const& to) {
            std::vector<std::byte> const rubbish(bytes, std::byte{'x'});
            static_cast<void>(to.send(rubbish));
        };
    };
    BOOST_TEST(has(found(0.1, [](tcp_socket const&) {}), "it does not answer a greeting"));
    BOOST_TEST(has(found(0.1, say(20)), "it does not answer a greeting"));
    BOOST_TEST(has(found(60, say(500)), "its answer is not from a rank of this version"));
    BOOST_TEST(has(found(60, [](tcp_socket const& to) { to.end_sending(); }), "it closes the connection"));
}

// Each rank finds its own job in any order of arrival.
BOOST_AUTO_TEST_CASE(two_jobs_at_one_port_stay_separate) {
    auto const port = free_port();
    std::vector<std::future<std::string>> all;
    for (int const i : {1, 3, 0, 2}) {
        auto place = place_at(port, i % 2, 2);
        place.job = i < 2 ? "one" : "other";
        all.push_back(begun(place, {.meet = 60}, [job = i / 2](tcp_ranks& ranks) {
            require(ranks.broadcast(job) == job && ranks.broadcast(job, 1) == job, errc::distributed, "mixed");
        }));
    }
    for (auto& each : all) BOOST_TEST(each.get() == "");
    // Two jobs that cannot be told apart are refused.
    auto first = begun(place_at(port, 0, 2), {.meet = 60}, [](tcp_ranks&) {});
    while (!tcp_socket::connected(detail::addresses_of("127.0.0.1", port).front(), 1000))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto const again = begun(place_at(port, 0, 2), {.meet = 60}, [](tcp_ranks&) {}).get();
    BOOST_TEST(has(again, "one of the same job listens there already: two jobs need two ports"), again);
    BOOST_TEST(begun(place_at(port, 1, 2), {.meet = 60}, [](tcp_ranks&) {}).get() == "");
    BOOST_TEST(first.get() == "");
}

BOOST_AUTO_TEST_CASE(addresses_from_the_wire_are_checked) {
    for (std::string const host : {"127.0.0.1", "::1", "fe80::1"}) {
        auto const one = detail::addresses_of(host, 77).front();
        auto const back = detail::from_wire(detail::to_wire(one), 0);
        BOOST_REQUIRE(back);
        BOOST_TEST((*back == one));
    }
    detail::tcp_wire_address wrong{{}, 4, 0};
    BOOST_TEST(!detail::from_wire(wrong, 0));
    wrong = {{}, 1, 77};
    BOOST_TEST(!detail::from_wire(wrong, 0));
}
