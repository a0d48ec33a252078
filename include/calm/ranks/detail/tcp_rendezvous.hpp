#pragma once
// The rendezvous by TCP: rank 0 listens, learns where each other rank listens, and sends all of them the list; then
// each rank connects to the lower ones. Once all have met no rank listens.

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "calm/ranks/detail/socket.hpp"
#include "calm/ranks/detail/tcp_greeting.hpp"
#include "calm/ranks/process_group.hpp"

namespace calm {

// Which rank a process is, and where and how the ranks meet.
struct tcp_endpoint {
    int rank;            // this rank's number
    int ranks;           // number of ranks
    std::string host;    // of rank 0: a name, or an address of one of its interfaces, that all ranks can reach
    std::uint16_t port;  // of rank 0; if it is taken, one of the next ports
    std::string job;     // a name that all ranks of the job share, and no other job

    // Known to all ranks of the job and to no other process, with an HMAC (openssl_mac) to prove it. Without a secret
    // any process that reaches the port can join: then all ranks must be on this machine, unless it is `insecure`.
    std::string secret{};
    tcp_mac_function mac = nullptr;  // the HMAC, or null
    bool insecure = false;           // allows ranks on other machines without a secret

    // How this program was compiled: ranks with different builds refuse to meet, because their bits may differ.
    std::string build{};
    // Receives warnings at once while a rank waits; may be empty.
    std::function<void(std::string const&)> log{};

    // Names of the settings above, for error messages.
    std::string host_source = "the host";
    std::string port_source = "the port";                    // of `port`
    std::string secret_source = "tcp_endpoint::secret";      // of `secret`
    std::string insecure_source = "tcp_endpoint::insecure";  // of `insecure`
};

// Time limits, in seconds.
struct tcp_limits {
    double meet = 300;      // until all have come
    double answer = 5;      // until a listener answers a greeting, or a guest has proved its identity
    double elsewhere = 30;  // for rank 0, if something else listens at its port
    double beat = 1;        // between two signs of life of a rank that does something else
    int ports = 8;          // number of ports to try, from tcp_endpoint::port on
};

namespace detail {

// Lets this process open `more` files. Throws errc::distributed if that is not allowed.
inline void allow_open_files(std::uint64_t more, int ranks) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    std::uint64_t const needed = more + 128;  // 128: about what is open already
    if (limit.rlim_cur >= needed) return;
    require(limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= needed, errc::distributed, "expected to be allowed ",
            needed, " open files, for ", ranks, " ranks, found at most ", limit.rlim_max,
            ": raise the hard limit (ulimit -Hn), or start fewer ranks");
    limit.rlim_cur = static_cast<rlim_t>(needed);
    require(::setrlimit(RLIMIT_NOFILE, &limit) == 0, errc::distributed, "expected to be allowed ", needed,
            " open files, found: ", system_text(errno));
}

// One rank's part of the rendezvous.
class tcp_rendezvous {
public:
    using clock = std::chrono::steady_clock;

    tcp_rendezvous(tcp_endpoint const& here, tcp_limits const& limits) :
        here_(here), limits_(limits),
        end_(in(limits.meet)), self_{here.rank,  here.ranks,  tcp_job_digest(here.job, here.port),
                                     here.build, here.secret, here.mac} {
        require(!here.job.empty(), errc::usage, "calm::tcp_ranks: expected a name of the job, found none");
        require(here.secret.empty() || here.mac != nullptr, errc::usage,
                "calm::tcp_ranks: expected an HMAC to prove the secret by (tcp_endpoint::mac), found none");
    }
    // (R) a connection to each other rank. Throws errc::distributed if one does not come or is invalid.
    std::vector<tcp_socket> meet() && {
        auto const ranks = static_cast<std::uint64_t>(here_.ranks);
        if (ranks > 1) allow_open_files(2 * ranks + 64, here_.ranks);  // and as many guests
        met_.resize(ranks);
        if (ranks > 1) {
            auto const addresses = addresses_of(here_.host, here_.port, here_.host_source);
            require_secret(addresses);
            here_.rank == 0 ? be_met(addresses) : reach(addresses);
        }
        return std::move(met_);
    }

private:
    using table = std::vector<tcp_wire_address>;  // (R) where each rank listens

    static clock::time_point in(double seconds) {
        return clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
    }
    [[nodiscard]] tcp_socket& met(int r) { return met_[static_cast<std::size_t>(r)]; }
    // "127.0.0.1:29500 (MASTER_ADDR, MASTER_PORT)"
    [[nodiscard]] std::string name() const {
        return here_.host + ":" + std::to_string(here_.port) + " (" + here_.host_source + ", " + here_.port_source +
               ")";
    }
    [[nodiscard]] int last_port() const { return std::min(here_.port + std::max(limits_.ports, 1) - 1, 65535); }
    void log(std::string const& sentence) const {
        if (here_.log) here_.log(sentence);
    }

    // Ranks on other machines must be able to prove that they belong to the job.
    void require_secret(std::span<socket_address const> addresses) const {
        if (!here_.secret.empty() || here_.insecure || std::ranges::all_of(addresses, is_loopback)) return;
        throw error(errc::distributed,
                    sentence("expected a secret for the ranks (", here_.secret_source, "), because they meet at ",
                             name(), ", which other machines may reach, found none. ", here_.insecure_source,
                             " admits anyone who can reach the port: use it only on a private network"));
    }

    void be_met(std::span<socket_address const> addresses) {
        auto const doors = open_doors(addresses);
        table where(met_.size());
        welcome(doors, 1, where);
        for (int r = 1; r < here_.ranks; ++r)
            if (!send_all(met(r), std::as_bytes(std::span(where)), end_)) fail_gone(r);
    }
    // Rank 0 listens on all of its addresses on this machine, at the first port that is free on each of them.
    std::vector<tcp_socket> open_doors(std::span<socket_address const> addresses) {
        std::string taken;
        for (int port = here_.port; port <= last_port(); ++port) {
            std::vector<tcp_socket> doors;
            bool free = true;
            for (auto at : addresses) {
                at.set_port(static_cast<std::uint16_t>(port));
                auto door = tcp_socket::listening(at);
                int const code = errno;
                if (door)
                    doors.push_back(std::move(door));
                else if (code == EADDRINUSE)
                    free = false;
                else if (code != EADDRNOTAVAIL && code != EAFNOSUPPORT)
                    throw error(errc::distributed, sentence("expected to listen at ", address_text(at),
                                                            ", for the other ranks, found: ", system_text(code),
                                                            "; give another port (", here_.port_source, ")"));
                if (!free) {
                    doors.clear();
                    taken = "port " + std::to_string(port) + " is taken: " + found_at(at);
                    break;
                }
            }
            if (!free) continue;
            require(!doors.empty(), errc::distributed,
                    "expected an address of this machine, where rank 0 meets the other ranks, found ", name(),
                    ": give an address of rank 0's machine that all ranks can reach");
            if (!taken.empty()) log(taken + "; rank 0 listens at port " + std::to_string(port));
            return doors;
        }
        throw error(errc::distributed,
                    sentence("expected a free port from ", here_.port, " to ", last_port(), " at ", here_.host,
                             ", found none; ", taken, ". Give another port (", here_.port_source, ")"));
    }
    // Describes the listener at a port that rank 0 wants. Throws if it is rank 0 of the same job.
    [[nodiscard]] std::string found_at(socket_address const& at) const {
        auto socket = tcp_socket::connected(at, 1000);
        if (!socket) return system_text(errno);
        auto const end = in(std::min(limits_.answer, 1.0));
        auto const found = greet(self_, std::move(socket), 0, 1, end, end);
        require(!found.is_final || found.answer != tcp_answer::taken, errc::distributed, "expected one rank 0 at ",
                name(), ", found that one of the same job listens there already: two jobs need two ports (",
                here_.port_source, ")");
        return found.why;
    }

    void reach(std::span<socket_address const> addresses) {
        tcp_socket door;
        auto pause = std::chrono::milliseconds(5);
        for (auto until = clock::time_point::max(); !met(0);) {
            std::string strange;  // found at the port instead of rank 0
            std::string final;    // why a rank of this job refuses this one
            for (auto const& address : addresses)
                if (!met(0)) look_for_first(address, door, strange, final);
            if (met(0)) break;
            if (!final.empty()) throw error(errc::distributed, sentence(final, ". Ranks meet at ", name()));
            if (strange.empty()) until = clock::time_point::max();
            if (!strange.empty() && until == clock::time_point::max()) {
                until = in(limits_.elsewhere);
                log(sentence("found at ", strange, "; waits for rank 0 at ", name(), " or a port up to ", last_port()));
            }
            if (clock::now() > until)
                throw error(errc::distributed,
                            sentence("expected rank 0 at ", name(), " or a port up to ", last_port(), ", found at ",
                                     strange, ". Give all ranks a port that is free on the machine of rank 0"));
            if (clock::now() > end_) fail_missing({0});
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, std::chrono::milliseconds(200));
        }
        table where(met_.size());
        if (!receive_all(met(0), std::as_writable_bytes(std::span(where)), end_)) fail_gone(0);
        for (int r = 1; r < here_.rank; ++r) reach_other(r, where[static_cast<std::size_t>(r)], door.here().port());
        welcome(std::span(&door, 1), here_.rank + 1, where);
    }
    // Tries each port of an address for rank 0.
    void look_for_first(socket_address at, tcp_socket& door, std::string& strange, std::string& final) {
        for (int port = here_.port; port <= last_port(); ++port) {
            at.set_port(static_cast<std::uint16_t>(port));
            auto socket = tcp_socket::connected(at, 1000);
            if (!socket && errno != ECONNREFUSED) return;  // the address cannot be reached
            if (!socket) continue;
            auto any_port = socket.here();
            any_port.set_port(0);
            door = tcp_socket::listening(any_port);
            require(static_cast<bool>(door), errc::distributed, "expected to listen at ", address_text(any_port),
                    ", the address from which this rank reached rank 0, found: ", system_text(errno));
            auto found = greet(self_, std::move(socket), 0, door.here().port(), in(limits_.answer), end_);
            if (found.socket) {
                met(0) = std::move(found.socket);
                return;
            }
            auto const says = address_text(at) + ": " + found.why;
            if (found.is_final && final.empty()) final = "found at " + says;
            if (port == here_.port) strange = says;
        }
    }
    // Connects to a rank that is known to listen; it may take a while to answer.
    void reach_other(int r, tcp_wire_address const& where, std::uint16_t port) {
        sockaddr_in6 const scope = reinterpret_cast<sockaddr_in6 const&>(met(0).here().bytes);
        auto const at = from_wire(where, scope.sin6_family == AF_INET6 ? scope.sin6_scope_id : 0);
        require(at.has_value(), errc::distributed, "expected the address of rank ", r, " from rank 0, found none");
        for (auto const refused = in(limits_.answer); !met(r);) {
            auto socket = tcp_socket::connected(*at, 1000);
            if (socket) {
                auto found = greet(self_, std::move(socket), r, port, end_, end_);
                require(!found.is_final, errc::distributed, "found at ", address_text(*at), ": ", found.why);
                met(r) = std::move(found.socket);
            }
            if (met(r)) return;
            if (clock::now() > std::min(refused, end_)) fail_gone(r);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }

    // Admits ranks from number `lowest` on and stores in where[r] where rank r listens. There are at most R + 32 guests
    // at once: the one that has waited longest makes room.
    void welcome(std::span<tcp_socket const> doors, int lowest, table& where) {
        std::deque<tcp_guest> guests;
        auto const most = met_.size() + 32;
        for (int missing = here_.ranks - lowest; missing > 0;) {
            std::vector<pollfd> waiting;
            for (auto const& door : doors) waiting.push_back({door.number(), POLLIN, 0});
            for (auto const& one : guests) waiting.push_back({one.socket().number(), POLLIN, 0});
            ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()), 100);
            for (auto const& door : doors)
                for (std::size_t i = 0; i < most; ++i) {
                    auto accepted = door.accept();
                    if (!accepted) break;
                    if (guests.size() == most) guests.pop_front();
                    guests.emplace_back(std::move(accepted), in(limits_.answer));
                }
            std::erase_if(guests, [&](tcp_guest& one) {
                auto const now = one.advance(self_);
                if (now == tcp_guest::state::trusted && let_in(one, lowest, where)) --missing;
                return now != tcp_guest::state::waiting;
            });
            if (missing > 0 && clock::now() > end_) fail_missing(missing_from(lowest));
        }
    }
    // Judges a guest that proved that it is of this job; returns whether it is a missing rank.
    bool let_in(tcp_guest& one, int lowest, table& where) {
        auto const& greeting = one.greeting();
        auto const answer = judge(greeting, lowest);
        if (answer != tcp_answer::welcome) {
            note_refused(greeting, answer);
            one.answer(self_, answer);
            return false;
        }
        auto socket = one.answer(self_, answer);
        if (!socket) return false;
        auto& its = where[static_cast<std::size_t>(greeting.rank)];
        its = to_wire(socket.there());
        its.port = static_cast<std::uint16_t>(greeting.port);
        met(greeting.rank) = std::move(socket);
        return true;
    }
    [[nodiscard]] tcp_answer judge(tcp_greeting const& greeting, int lowest) {
        if (greeting.ranks != here_.ranks) return tcp_answer::other_count;
        if (greeting.wanted != here_.rank || greeting.port == 0 || greeting.port > 65535) return tcp_answer::other_rank;
        if (unpadded(greeting.build) != unpadded(padded<128>(here_.build))) return tcp_answer::other_build;
        if (greeting.rank < lowest || greeting.rank >= here_.ranks || met(greeting.rank)) return tcp_answer::taken;
        return tcp_answer::welcome;
    }
    // Reports a refused guest; this rank keeps waiting for the right one.
    void note_refused(tcp_greeting const& greeting, tcp_answer answer) {
        refused_ = sentence("refused a process that says it is rank ", greeting.rank, " of ", greeting.ranks,
                            answer == tcp_answer::other_build
                                ? sentence(" and compiled as '", unpadded(greeting.build), "', not '", here_.build, "'")
                            : answer == tcp_answer::taken ? ", which is already here"
                                                          : sentence(", for rank ", here_.rank, " of ", here_.ranks));
        if (refusals_++ < 5) log(refused_);
    }
    [[nodiscard]] std::vector<int> missing_from(int lowest) {
        std::vector<int> all;
        for (int r = lowest; r < here_.ranks; ++r)
            if (!met(r)) all.push_back(r);
        return all;
    }

    [[noreturn]] void fail_missing(std::vector<int> const& missing) const {
        throw error(errc::distributed,
                    sentence("expected ", here_.ranks, " ranks to meet at ", name(), ", but ", ranks_text(missing),
                             " did not come in time", refused_.empty() ? "" : "; ", refused_,
                             ". Is that an address of rank 0's machine that all machines can reach, and did all "
                             "processes start with it?"));
    }
    [[noreturn]] void fail_gone(int r) const {
        throw error(errc::distributed,
                    sentence("rank ", r, " has ended before all ranks had met at ", name(), ": see its own message"));
    }

    tcp_endpoint const& here_;
    tcp_limits const& limits_;
    clock::time_point end_;
    tcp_identity self_;
    std::vector<tcp_socket> met_;
    std::string refused_;  // about the last refused guest
    int refusals_ = 0;
};

}  // namespace detail

}  // namespace calm
