#pragma once
// How ranks that are processes find each other by TCP: rank 0 listens, hears where each other rank listens, and tells
// all; then each connects to those before it. Once all have met nobody listens.

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "calm/base/number_text.hpp"
#include "calm/ranks/collective.hpp"
#include "calm/ranks/socket.hpp"

namespace calm {

// Which rank a process is, and where all of them meet.
struct tcp_place {
    int rank;            // this one's number
    int ranks;           // how many there are
    std::string host;    // of rank 0: a name, or an address of one of its interfaces, by which all reach it
    std::uint16_t port;  // there
    std::string job;     // the same for all ranks of a job, at most 63 bytes: who says another is none of them
};

namespace detail {

// One rank's way to the others.
class tcp_meeting {
public:
    using clock = std::chrono::steady_clock;

    // Others may come until then.
    tcp_meeting(tcp_place const& here, clock::time_point end) :
        here_(here), end_(end), met_(static_cast<std::size_t>(here.ranks)) {
        require(here.job.size() < sizeof(hello::job), errc::usage, "calm::tcp_ranks: expected a job's name of at most ",
                sizeof(hello::job) - 1, " bytes, found ", here.job.size());
    }
    // (R) a connection to each other rank. Throws errc::distributed where one does not come, or is not as expected.
    std::vector<tcp_socket> meet() && {
        if (here_.ranks == 1) return std::move(met_);
        auto const first = address_of(here_.host, here_.port);
        here_.rank == 0 ? be_met(first) : reach(first);
        return std::move(met_);
    }

private:
    // What a process says of itself to whom it connects.
    struct hello {
        std::array<char, 16> magic;
        std::array<char, 64> job;
        std::int32_t rank;
        std::int32_t ranks;
        std::uint32_t port;  // where it listens itself
    };
    static constexpr std::array<char, 16> magic{'c', 'a', 'l', 'm', ' ', 'r', 'a', 'n', 'k', 's', ' ', '1'};
    // Who connected, and has not said all of that.
    struct guest {
        tcp_socket socket;
        clock::time_point until;
        hello said{};
        std::size_t came = 0;
    };
    using table = std::vector<socket_address>;  // (R) where each rank listens

    [[nodiscard]] hello own(std::uint16_t port) const {
        hello says{magic, {}, here_.rank, here_.ranks, port};
        std::ranges::copy(here_.job, says.job.begin());
        return says;
    }
    [[nodiscard]] std::string name() const { return here_.host + ":" + std::to_string(here_.port); }
    [[nodiscard]] tcp_socket& met(int r) { return met_[static_cast<std::size_t>(r)]; }

    void be_met(socket_address const& at) {
        auto const door = tcp_socket::listening(at, name());
        table where(met_.size());
        welcome(door, 1, where);
        for (int r = 1; r < here_.ranks; ++r)
            if (!pass(met(r), std::as_bytes(std::span(where)))) fail_gone(r);
    }
    void reach(socket_address const& first) {
        while (!met(0)) {
            met(0) = tcp_socket::connected(first, 1000);
            if (met(0)) break;
            if (clock::now() > end_) fail_missing({0});
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        auto at = met(0).here();
        at.set_port(0);
        auto const door = tcp_socket::listening(at, "the address by which it reached rank 0");
        auto const says = own(door.here().port());
        table where(met_.size());
        if (!pass(met(0), std::as_bytes(std::span(&says, 1))) ||
            !take(met(0), std::as_writable_bytes(std::span(where))))
            fail_gone(0);
        for (int r = 1; r < here_.rank; ++r) {
            met(r) = tcp_socket::connected(where[static_cast<std::size_t>(r)], 10'000);
            if (!met(r) || !pass(met(r), std::as_bytes(std::span(&says, 1)))) fail_gone(r);
        }
        welcome(door, here_.rank + 1, where);
    }

    // Lets ranks in from number `lowest` on; where[r] becomes where rank r listens.
    void welcome(tcp_socket const& door, int lowest, table& where) {
        std::vector<guest> guests;
        for (int missing = here_.ranks - lowest; missing > 0;) {
            std::vector<pollfd> waiting{{door.number(), POLLIN, 0}};
            for (auto const& one : guests) waiting.push_back({one.socket.number(), POLLIN, 0});
            ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()), 100);
            while (auto came = door.accept())
                guests.push_back({std::move(came), clock::now() + std::chrono::seconds(10)});
            for (auto& one : guests) {
                auto const all = std::as_writable_bytes(std::span(&one.said, 1));
                auto const came = one.socket.receive(all.subspan(one.came));
                if (came) one.came += *came;
                if (!came || clock::now() > one.until) one.socket.close();
                if (one.came < all.size()) continue;
                if (one.said.magic == magic && one.said.job == own(0).job) {
                    let_in(one, lowest, where);
                    --missing;
                }
                one.socket.close();  // where it was let in it is none any more
            }
            std::erase_if(guests, [](guest const& one) { return !one.socket; });
            if (missing > 0 && clock::now() > end_) fail_missing(missing_from(lowest));
        }
    }
    void let_in(guest& one, int lowest, table& where) {
        auto const r = one.said.rank;
        require(one.said.ranks == here_.ranks && r >= lowest && r < here_.ranks && !met(r), errc::distributed,
                "expected each of ", here_.ranks, " ranks once at ", name(), ", found one that says that it is rank ",
                r, " of ", one.said.ranks);
        auto& its = where[static_cast<std::size_t>(r)];
        its = one.socket.there();
        its.set_port(static_cast<std::uint16_t>(one.said.port));
        met(r) = std::move(one.socket);
    }
    [[nodiscard]] std::vector<int> missing_from(int lowest) {
        std::vector<int> all;
        for (int r = lowest; r < here_.ranks; ++r)
            if (!met(r)) all.push_back(r);
        return all;
    }

    // Whether all bytes went or came in time.
    bool pass(tcp_socket const& to, std::span<std::byte const> bytes) const {
        return whole(to, bytes, POLLOUT, [&](auto rest) { return to.send(rest); });
    }
    bool take(tcp_socket const& from, std::span<std::byte> place) const {
        return whole(from, place, POLLIN, [&](auto rest) { return from.receive(rest); });
    }
    template <class Byte, class Move>
    bool whole(tcp_socket const& socket, std::span<Byte> rest, short event, Move const& move) const {
        while (!rest.empty() && clock::now() < end_) {
            auto const done = move(rest);
            if (!done) return false;
            rest = rest.subspan(*done);
            pollfd wait{socket.number(), event, 0};
            if (*done == 0) ::poll(&wait, 1, 100);
        }
        return rest.empty();
    }

    [[noreturn]] void fail_missing(std::vector<int> const& missing) const {
        throw error(errc::distributed,
                    sentence("expected ", here_.ranks, " ranks to meet at ", name(), ", and ", ranks_text(missing),
                             " did not come in time. Is that an address of rank 0's machine that all "
                             "machines reach, and are all processes started with the same?"));
    }
    [[noreturn]] void fail_gone(int r) const {
        throw error(errc::distributed,
                    sentence("rank ", r, " has ended before all ranks had met at ", name(),
                             ": expected the same number of ranks and the same job of all; what it says comes first"));
    }

    tcp_place const& here_;
    clock::time_point end_;
    std::vector<tcp_socket> met_;
};

}  // namespace detail

}  // namespace calm
