#pragma once
// Ranks that are processes, on one machine or many, which find each other by TCP: where nobody brings MPI.

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "calm/ranks/collective.hpp"
#include "calm/ranks/socket.hpp"
#include "calm/ranks/tcp_meeting.hpp"

namespace calm {

// This process's end. To meet, rank 0 listens at `host` and `port`, on that interface alone, and each other rank on the
// interface by which it reached rank 0; once all are connected nobody listens. Then bytes go from each rank straight to
// each other, so whoever is gone or gives no answer is known by its number. Nothing is encrypted, and whoever can send
// to the port while ranks meet can say that it is one: it is for networks that are one's own. All calls come from one
// thread.
class tcp_ranks final : public collective {
public:
    // Throws errc::distributed where not all have come after so many seconds, and where one of them has another number
    // of ranks.
    explicit tcp_ranks(tcp_place const& here, double seconds_to_meet = 300) :
        collective(here.rank, here.ranks), peers_(static_cast<std::size_t>(here.ranks)) {
        auto const end =
            clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds_to_meet));
        auto sockets = detail::tcp_meeting(here, end).meet();
        for (std::size_t r = 0; r < peers_.size(); ++r) peers_[r].socket = std::move(sockets[r]);
    }
    ~tcp_ranks() override {
        for (auto const& p : peers_)
            if (p.socket) p.socket.end_sending();
    }

    void fail(error const& why) noexcept override {
        if (failed_) return;
        failed_ = true;
        try {
            told_ = std::string(1, static_cast<char>(why.code())) + std::string(why.what()).substr(0, most_told);
            for (auto& p : peers_) {
                if (!p.sending.empty() && p.sending.front().done > 0) p.socket.close();  // the rest may be gone
                p.sending.clear();
                p.sending.push_back(message(kind::failure, std::as_bytes(std::span(told_))));
            }
            for_a_while([&](peer& p) { return !p.socket || p.sending.empty() || !flush(p); });
            // What is unread when a socket is closed can take what was sent last with it.
            for (auto const& p : peers_)
                if (p.socket) p.socket.end_sending();
            for_a_while([&](peer& p) {
                std::array<std::byte, 4096> ignored;
                return !p.socket || !p.socket.receive(ignored);
            });
        } catch (...) {  // nobody hears of it, and finds this end closed
        }
    }
    // After fail(): whether rank 0 knows that a rank cannot go on, and so can say why.
    [[nodiscard]] bool is_known_at_first() const {
        auto const& first = peers_[0];
        return is_first() || (!first_is_lost_ && (told_.empty() || (first.socket && first.sending.empty())));
    }
    void hear() override {
        for (int r = 0; r < ranks(); ++r) {
            if (r == rank()) continue;
            drain(r);
            if (peers_[static_cast<std::size_t>(r)].ended) fail_gone(r);
        }
    }

private:
    using clock = std::chrono::steady_clock;
    enum class kind : std::uint32_t { message, failure };
    // What stands before the bytes of a message.
    struct header {
        std::uint64_t bytes;
        kind what;
        std::uint32_t unused;
    };
    struct outgoing {
        header head;
        sent bytes;
        std::size_t done = 0;  // of both
    };
    struct peer {
        detail::tcp_socket socket;
        std::deque<outgoing> sending;
        std::deque<received> places;  // of what is to come, in order
        header head{};                // of what comes now
        std::size_t came = 0;         // of it and its head
        std::uint64_t gone = 0;       // messages that went
        std::uint64_t here = 0;       // that came
        bool ended = false;           // nothing more is to come
    };
    static constexpr std::size_t most_told = 4096;

    static outgoing message(kind what, sent bytes) { return {{bytes.size(), what, 0}, bytes}; }

    // Until f(peer) is true of each other rank, or it takes longer than few bytes may.
    template <class F> void for_a_while(F const& f) {
        for (auto const end = clock::now() + std::chrono::milliseconds(500); clock::now() < end;) {
            bool done = true;
            for (int r = 0; r < ranks(); ++r)
                if (r != rank() && !f(peers_[static_cast<std::size_t>(r)])) done = false;
            if (done) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    void begin_swap(std::span<sent const> to, std::span<received const> from) override {
        for (std::size_t r = 0; r < peers_.size(); ++r) {
            if (std::cmp_equal(r, rank())) continue;
            peers_[r].sending.push_back(message(kind::message, to[r]));
            peers_[r].places.push_back(from[r]);
        }
        bring_on();
    }
    // Of the first exchange under way; all make progress.
    bool is_swapped() override {
        bring_on();
        return silent().empty();
    }
    void finish_swap() override {
        wait_for_swap([&](double) { wait_for_bytes(std::chrono::milliseconds(50)); }, [&] { return silent(); },
                      [&](auto const& lost) { give_up(lost); });
        ++finished_;
    }
    // Of whom something is still to come in that exchange, or else who has not taken what it is sent.
    [[nodiscard]] std::vector<int> silent() const {
        auto const senders = missing(true);
        return senders.empty() ? missing(false) : senders;
    }
    [[nodiscard]] std::vector<int> missing(bool receives) const {
        std::vector<int> all;
        for (int r = 0; r < ranks(); ++r) {
            auto const& p = peers_[static_cast<std::size_t>(r)];
            if (r != rank() && (receives ? p.here : p.gone) <= finished_) all.push_back(r);
        }
        return all;
    }
    void bring_on() {
        for (int r = 0; r < ranks(); ++r) {
            if (r == rank()) continue;
            auto& p = peers_[static_cast<std::size_t>(r)];
            if (!flush(p)) {
                drain(r);  // it may have said why
                fail_gone(r);
            }
            drain(r);
        }
    }
    // Sends what goes now. Whether the other end is there.
    static bool flush(peer& p) {
        while (!p.sending.empty()) {
            auto& next = p.sending.front();
            auto const head = std::as_bytes(std::span(&next.head, 1));
            auto const went = next.done < head.size() ? p.socket.send(head.subspan(next.done), next.bytes)
                                                      : p.socket.send(next.bytes.subspan(next.done - head.size()));
            if (!went) return false;
            if (*went == 0) return true;
            next.done += *went;
            if (next.done < head.size() + next.bytes.size()) continue;
            p.sending.pop_front();
            ++p.gone;
        }
        return true;
    }
    // Takes what comes now, as far as it has a place.
    void drain(int r) {
        auto& p = peers_[static_cast<std::size_t>(r)];
        for (auto const head = std::as_writable_bytes(std::span(&p.head, 1));;) {
            if (p.came < head.size()) {
                auto const came = p.socket.receive(head.subspan(p.came));
                if (!came) p.ended = true;
                if (!came && p.places.empty()) return;  // nothing is expected
                if (!came) fail_gone(r);
                p.came += *came;
                if (p.came < head.size()) return;
            }
            if (p.head.what != kind::message) fail_as_told(r);
            if (p.places.empty()) return;  // it is ahead
            auto const to = p.places.front();
            if (p.head.bytes != to.size()) {
                failed_ = true;
                fail_unequal(r, to.size(), static_cast<std::size_t>(p.head.bytes));
            }
            if (auto const rest = to.subspan(p.came - head.size()); !rest.empty()) {
                auto const came = p.socket.receive(rest);
                if (!came) fail_gone(r);
                if (*came == 0) return;
                p.came += *came;
                if (*came < rest.size()) continue;
            }
            p.places.pop_front();
            p.came = 0;
            ++p.here;
        }
    }
    // Another rank says why it cannot go on.
    [[noreturn]] void fail_as_told(int r) {
        auto const& p = peers_[static_cast<std::size_t>(r)];
        std::string text(static_cast<std::size_t>(std::min<std::uint64_t>(p.head.bytes, most_told + 1)), '\0');
        auto rest = std::as_writable_bytes(std::span(text));
        for (auto const end = clock::now() + std::chrono::milliseconds(500); !rest.empty() && clock::now() < end;) {
            auto const came = p.socket.receive(rest);
            if (!came) break;
            rest = rest.subspan(*came);
            if (*came == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        failed_ = true;
        if (text.empty() || rest.size() == text.size()) fail_gone(r);
        text.resize(text.size() - rest.size());
        fail_with(r, static_cast<errc>(static_cast<unsigned char>(text[0])), std::string_view(text).substr(1));
    }
    // Who these wait for in vain.
    void give_up(std::vector<int> const& lost) {
        failed_ = true;
        first_is_lost_ = std::ranges::count(lost, 0) > 0;
    }
    [[noreturn]] void fail_gone(int r) {
        give_up({r});
        throw error(errc::distributed, "rank " + std::to_string(r) + " has ended" + after_step() +
                                           ": expected an answer of each of " + std::to_string(ranks()) +
                                           " ranks; the same command goes on after the last checkpoint, with any "
                                           "number of ranks");
    }
    void wait_for_bytes(std::chrono::milliseconds most) const {
        std::vector<pollfd> all;
        for (auto const& p : peers_) {
            auto const events = static_cast<short>((p.places.empty() ? 0 : POLLIN) | (p.sending.empty() ? 0 : POLLOUT));
            if (p.socket && events != 0) all.push_back({p.socket.number(), events, 0});
        }
        ::poll(all.data(), static_cast<nfds_t>(all.size()), static_cast<int>(most.count()));
    }

    std::vector<peer> peers_;
    std::uint64_t finished_ = 0;  // exchanges
    std::string told_;            // to others, of this rank's failure
    bool failed_ = false;
    bool first_is_lost_ = false;
};

}  // namespace calm
