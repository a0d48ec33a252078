#pragma once
// A connection between two ranks that have met by TCP: messages with their sizes, signs of life and failures.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "calm/ranks/detail/socket.hpp"

namespace calm::detail {

// This rank's end. No call waits.
class tcp_peer {
public:
    using clock = std::chrono::steady_clock;

    explicit tcp_peer(tcp_socket socket = {}) : socket_(std::move(socket)) {}

    // Outcome of receiving.
    enum class event {
        none,      // nothing to report
        ended,     // the other end is gone while something is expected
        unequal,   // a message does not have the expected size: expected_bytes(), found_bytes()
        failed,    // the other rank cannot continue: failure()
        nonsense,  // not a message of a rank
    };
    static constexpr std::size_t max_failure_bytes = 4096;  // bytes of failure()

    [[nodiscard]] tcp_socket const& socket() const { return socket_; }
    [[nodiscard]] bool is_sending() const { return !sending_.empty(); }
    [[nodiscard]] bool is_expecting() const { return !buffers_.empty(); }
    [[nodiscard]] bool has_ended() const { return ended_; }  // as far as drain() has seen
    [[nodiscard]] std::uint64_t messages_sent() const { return sent_; }
    [[nodiscard]] std::uint64_t messages_received() const { return received_; }
    [[nodiscard]] clock::time_point last_heard() const { return last_heard_; }
    [[nodiscard]] std::size_t expected_bytes() const { return buffers_.front().size(); }
    [[nodiscard]] std::uint64_t found_bytes() const { return head_.bytes; }
    // One byte with the number of an error code, then the error message.
    [[nodiscard]] std::string const& failure() const { return failure_; }

    // The bytes must stay until they are sent, and the buffer until it is filled.
    void send(std::span<std::byte const> bytes) { sending_.push_back({{bytes.size(), kind::message, 0}, bytes}); }
    void expect(std::span<std::byte> buffer) { buffers_.push_back(buffer); }
    // Queues a sign of life if nothing else is queued.
    void send_beat() {
        if (sending_.empty()) sending_.push_back({{0, kind::beat, 0}, {}});
    }
    // Replaces everything that is not sent yet. Closes the connection if a message is partly sent.
    void send_failure(std::span<std::byte const> message) {
        if (is_sending() && sending_.front().done > 0) socket_.close();
        sending_.clear();
        sending_.push_back({{message.size(), kind::failure, 0}, message});
    }

    // Sends as much as possible now; returns whether the other end is there.
    bool flush() {
        while (!sending_.empty()) {
            auto& next = sending_.front();
            auto const head = std::as_bytes(std::span(&next.head, 1));
            auto const went = next.done < head.size() ? socket_.send(head.subspan(next.done), next.bytes)
                                                      : socket_.send(next.bytes.subspan(next.done - head.size()));
            if (!went && next.head.what == kind::beat && sending_.size() == 1) {
                sending_.clear();  // harmless: the other end needs nothing more
                return true;
            }
            if (!went) return false;
            if (*went == 0) return true;
            next.done += *went;
            if (next.done < head.size() + next.bytes.size()) continue;
            if (next.head.what == kind::message) ++sent_;
            sending_.pop_front();
        }
        return true;
    }
    // Receives bytes that have arrived, if there is a buffer for them. A failure of the other rank is reported only
    // instead of an expected message, or if `listens`. The other rank took part in all earlier exchanges, so this rank
    // may fail first with its own error, whenever it looks.
    event drain(bool listens = false) {
        for (;;) {
            if (auto const head = std::as_writable_bytes(std::span(&head_, 1)); filled_ < head.size()) {
                if (!receive(head.subspan(filled_))) return is_expecting() ? event::ended : event::none;
                if (filled_ < head.size()) return event::none;
            }
            if (head_.what == kind::failure) return listens || is_expecting() ? receive_failure() : event::none;
            if (head_.what == kind::beat && head_.bytes == 0) {
                filled_ = 0;
                continue;
            }
            if (head_.what != kind::message) return event::nonsense;
            if (buffers_.empty()) return event::none;  // the other rank is ahead
            auto const to = buffers_.front();
            if (head_.bytes != to.size()) return event::unequal;
            if (auto const rest = to.subspan(filled_ - sizeof head_); !rest.empty()) {
                if (!receive(rest)) return event::ended;
                if (filled_ < sizeof head_ + to.size()) return event::none;
            }
            buffers_.pop_front();
            filled_ = 0;
            ++received_;
        }
    }

private:
    enum class kind : std::uint32_t { message, failure, beat };
    // Precedes the bytes of a message.
    struct header {
        std::uint64_t bytes;
        kind what;
        std::uint32_t unused;
    };
    struct outgoing {
        header head;
        std::span<std::byte const> bytes;
        std::size_t done = 0;  // bytes of both
    };

    // Receives more of a header, message or failure. False at the end of the stream.
    bool receive(std::span<std::byte> rest) {
        auto const count = socket_.receive(rest);
        if (!count) ended_ = true;
        if (count.value_or(0) > 0) last_heard_ = clock::now();
        filled_ += count.value_or(0);
        return count.has_value();
    }
    event receive_failure() {
        if (head_.bytes == 0 || head_.bytes > max_failure_bytes) return event::nonsense;
        failure_.resize(static_cast<std::size_t>(head_.bytes));
        auto const rest = std::as_writable_bytes(std::span(failure_)).subspan(filled_ - sizeof head_);
        bool const more = !rest.empty() && receive(rest);
        auto const size = filled_ - sizeof head_;
        if (size < failure_.size() && (more || size == 0)) return ended_ ? event::ended : event::none;
        failure_.resize(size);
        return event::failed;
    }

    tcp_socket socket_;
    std::deque<outgoing> sending_;
    std::deque<std::span<std::byte>> buffers_;  // of expected messages, in order
    header head_{};                             // of the current message
    std::size_t filled_ = 0;                    // bytes of it, with its header
    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
    clock::time_point last_heard_ = clock::now();
    std::string failure_;
    bool ended_ = false;
};

}  // namespace calm::detail
