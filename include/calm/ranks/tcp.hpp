#pragma once
/// \file
/// Ranks as processes that find each other by TCP, on one machine or many, without MPI.
/// \shows{tests/ranks/tcp_test.cpp,begun}

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "calm/ranks/detail/tcp_peer.hpp"
#include "calm/ranks/detail/tcp_rendezvous.hpp"
#include "calm/ranks/process_group.hpp"

namespace calm {

/// This process's end. During the rendezvous rank 0 listens at `host` and `port`, on these addresses alone, and every
/// other rank on the address by which it reached rank 0; once all are connected no rank listens. Then bytes go directly
/// between each pair of ranks, so errors name the rank that has ended or gives no answer.
///
/// During the rendezvous each pair of ranks proves to each other that it has the job's secret. Later traffic is neither
/// encrypted nor signed: an attacker who can alter it can alter what ranks receive. All calls come from one thread. A
/// second thread only gives signs of life, so that stopped ranks are noticed also before and after the work.
class tcp_ranks final : public process_group {
public:
    /// Throws errc::distributed if a rank does not come in time or is invalid.
    explicit tcp_ranks(tcp_endpoint const& here, tcp_limits const& limits = {}) :
        process_group(here.rank, here.ranks), beat_(limits.beat) {
        for (auto& socket : detail::tcp_rendezvous(here, limits).meet()) peers_.emplace_back(std::move(socket));
        if (here.ranks > 1) beats_ = std::jthread([this](std::stop_token const& over) { beat(over); });
    }
    ~tcp_ranks() override {
        end_beats();
        if (!failed_) say_goodbye();
    }

    void fail(error const& why) noexcept override {
        if (failed_) return;
        failed_ = true;
        try {
            end_beats();
            failure_message_ = std::string(1, static_cast<char>(why.code())) +
                               std::string(why.what()).substr(0, detail::tcp_peer::max_failure_bytes - 1);
            for (auto& p : peers_) p.send_failure(std::as_bytes(std::span(failure_message_)));
            for_a_while([&](detail::tcp_peer& p) { return !p.socket() || !p.is_sending() || !p.flush(); });
            say_goodbye();
        } catch (...) {  // other ranks find this end closed
        }
    }
    /// After fail(): whether rank 0 knows that a rank cannot continue, and so can report why.
    [[nodiscard]] bool is_known_at_first() const {
        auto const& first = peers_[0];
        return is_first() || (!first_is_lost_ && (failure_message_.empty() || (first.socket() && !first.is_sending())));
    }
    void poll_failures() override {
        std::lock_guard const lock(mutex_);
        for (int r = 0; r < ranks(); ++r) {
            if (r == rank()) continue;
            drain(r, true);
            if (peer(r).has_ended()) fail_gone(r);
        }
    }

private:
    using clock = std::chrono::steady_clock;

    [[nodiscard]] detail::tcp_peer& peer(int r) { return peers_[static_cast<std::size_t>(r)]; }
    [[nodiscard]] detail::tcp_peer const& peer(int r) const { return peers_[static_cast<std::size_t>(r)]; }

    // Repeats until f(peer) is true for each other rank, or for longer than a short message takes.
    template <class F> void for_a_while(F const& f) {
        for (auto const end = clock::now() + std::chrono::milliseconds(500); clock::now() < end;) {
            bool done = true;
            for (int r = 0; r < ranks(); ++r)
                if (r != rank() && !f(peer(r))) done = false;
            if (done) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    // Ends the outgoing streams and reads the rest: closing a socket with unread data can drop the last bytes sent.
    void say_goodbye() {
        for (auto const& p : peers_)
            if (p.socket()) p.socket().end_sending();
        for_a_while([&](detail::tcp_peer const& p) {
            std::array<std::byte, 4096> ignored;
            return !p.socket() || !p.socket().receive(ignored);
        });
    }

    void beat(std::stop_token const& over) {
        std::unique_lock lock(mutex_);
        while (!over.stop_requested()) {
            for (auto& p : peers_) {
                if (!p.socket()) continue;
                p.send_beat();
                static_cast<void>(p.flush());  // a lost rank is noticed in the next exchange
            }
            wake_.wait_for(lock, over, std::chrono::duration<double>(beat_), [] { return false; });
        }
    }
    void end_beats() {
        beats_.request_stop();
        if (beats_.joinable()) beats_.join();
    }

    void start_all_to_all(std::span<sent const> to, std::span<received const> from) override {
        std::lock_guard const lock(mutex_);
        for (std::size_t r = 0; r < peers_.size(); ++r) {
            if (std::cmp_equal(r, rank())) continue;
            peers_[r].send(to[r]);
            peers_[r].expect(from[r]);
        }
        make_progress();
    }
    // Whether the oldest exchange in flight is done; all make progress.
    bool test_all_to_all() override {
        std::lock_guard const lock(mutex_);
        make_progress();
        return waited_for().empty();
    }
    void wait_all_to_all() override {
        auto const pause = [&](double waited) {
            if (waited > 1) listen();  // the wait may be long: check for failures
            wait_for_bytes(std::chrono::milliseconds(50));
        };
        poll_all_to_all(
            pause, [&] { return silent(); }, [&](auto const& lost) { give_up(lost); });
        ++finished_;
    }
    [[nodiscard]] std::vector<int> silent() const {
        std::lock_guard const lock(mutex_);
        return waited_for();
    }
    [[nodiscard]] std::vector<int> lifeless(std::span<int const> others) const override {
        std::lock_guard const lock(mutex_);
        std::vector<int> all;
        for (int const r : others)
            if (clock::now() - peer(r).last_heard() > std::chrono::duration<double>(std::max(timeout, 5 * beat_)))
                all.push_back(r);
        return all;
    }
    // Ranks that still owe a message in the oldest exchange in flight, or else ranks that have not received theirs.
    [[nodiscard]] std::vector<int> waited_for() const {
        auto const senders = missing(&detail::tcp_peer::messages_received);
        return senders.empty() ? missing(&detail::tcp_peer::messages_sent) : senders;
    }
    [[nodiscard]] std::vector<int> missing(std::uint64_t (detail::tcp_peer::*done)() const) const {
        std::vector<int> all;
        for (int r = 0; r < ranks(); ++r)
            if (r != rank() && (peer(r).*done)() <= finished_) all.push_back(r);
        return all;
    }
    void make_progress() {
        for (int r = 0; r < ranks(); ++r) {
            if (r == rank()) continue;
            bool const there = peer(r).flush();
            drain(r, !there);  // it may have sent the reason
            if (!there) fail_gone(r);
        }
    }
    // Checks all ranks for failures.
    void listen() {
        std::lock_guard const lock(mutex_);
        for (int r = 0; r < ranks(); ++r)
            if (r != rank()) drain(r, true);
    }
    // Receives what has arrived, as far as there is a place for it.
    void drain(int r, bool listens) {
        using event = detail::tcp_peer::event;
        auto& p = peer(r);
        auto const what = p.drain(listens);
        if (what == event::none) return;
        if (what == event::ended) fail_gone(r);
        failed_ = true;
        if (what == event::unequal) fail_unequal(r, p.expected_bytes(), p.found_bytes());
        if (what == event::failed)
            fail_with(r, static_cast<unsigned char>(p.failure()[0]), std::string_view(p.failure()).substr(1));
        throw error(errc::distributed,
                    sentence("expected messages of rank ", r, after_step(), ", found bytes that no rank sends"));
    }
    // These ranks were waited for in vain.
    void give_up(std::vector<int> const& lost) {
        failed_ = true;
        first_is_lost_ = std::ranges::count(lost, 0) > 0;
    }
    [[noreturn]] void fail_gone(int r) {
        give_up({r});
        throw error(errc::distributed, "rank " + std::to_string(r) + " has ended" + after_step() +
                                           ": expected an answer from each of " + std::to_string(ranks()) + " ranks; " +
                                           advice());
    }
    void wait_for_bytes(std::chrono::milliseconds most) const {
        std::vector<pollfd> all;
        {
            std::lock_guard const lock(mutex_);
            for (auto const& p : peers_) {
                auto const events =
                    static_cast<short>((p.is_expecting() ? POLLIN : 0) | (p.is_sending() ? POLLOUT : 0));
                if (p.socket() && events != 0) all.push_back({p.socket().number(), events, 0});
            }
        }
        ::poll(all.data(), static_cast<nfds_t>(all.size()), static_cast<int>(most.count()));
    }

    std::vector<detail::tcp_peer> peers_;
    mutable std::mutex mutex_;  // guards peers_ while there are beats
    double beat_;               // seconds between two signs of life
    std::condition_variable_any wake_;
    std::jthread beats_;
    std::uint64_t finished_ = 0;   // exchanges finished
    std::string failure_message_;  // to others, about this rank's failure
    bool failed_ = false;
    bool first_is_lost_ = false;
};

}  // namespace calm
