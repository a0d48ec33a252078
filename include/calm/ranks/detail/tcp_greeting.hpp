#pragma once
// The handshake of two ranks that meet by TCP: they prove that they belong together before either trusts anything else.
//
// The connecting end sends a greeting and the accepting end a challenge; the connecting end sends its proof, and the
// accepting end its answer with a proof. A proof is an HMAC with the job's secret of greeting and challenge, each with
// 32 fresh random bytes, and of the addresses of both ends, so that it cannot be relayed. Later traffic is neither
// encrypted nor signed.

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "calm/ranks/detail/socket.hpp"
#include "calm/ranks/detail/tcp_messages.hpp"

namespace calm::detail {

// An incoming connection, not trusted until its proof is right.
class tcp_guest {
public:
    using clock = std::chrono::steady_clock;
    enum class state { waiting, trusted, refused };

    // The handshake must end by `until`.
    tcp_guest(tcp_socket socket, clock::time_point until) : socket_(std::move(socket)), until_(until) {}

    [[nodiscard]] tcp_socket const& socket() const { return socket_; }
    [[nodiscard]] tcp_greeting const& greeting() const { return greeting_; }  // valid once it is trusted

    // Processes what has arrived and returns the new state. A refused guest cannot be used any more.
    state advance(tcp_identity const& self) {
        if (clock::now() > until_) return state::refused;
        if (filled_ < sizeof greeting_) {
            if (!receive(std::as_writable_bytes(std::span(&greeting_, 1)), 0)) return state::refused;
            if (filled_ < sizeof greeting_) return state::waiting;
            if (greeting_.magic != tcp_magic || !challenge(self)) return state::refused;
        }
        if (!receive(proof_, sizeof greeting_)) return state::refused;
        if (filled_ < sizeof greeting_ + sizeof proof_) return state::waiting;
        if (is_same(proof_, tcp_proof(self, connects, ends(), greeting_, challenge_))) return state::trusted;
        answer(self, tcp_answer::wrong_proof);
        return state::refused;
    }
    // Sends a trusted guest the answer; returns the connection if it is welcome and still open.
    tcp_socket answer(tcp_identity const& self, tcp_answer answer) {
        bool const wrong = answer == tcp_answer::wrong_proof;
        tcp_verdict const says{wrong ? tcp_mac{} : tcp_proof(self, accepts, ends(), greeting_, challenge_, answer),
                               answer};
        bool const heard = socket_.send(bytes_of(says)) == sizeof says;
        return heard && answer == tcp_answer::welcome ? std::move(socket_) : tcp_socket();
    }

private:
    [[nodiscard]] tcp_ends ends() const { return {to_wire(socket_.there()), to_wire(socket_.here())}; }
    // Receives bytes of the message that begins at offset `begin`. False if the other end is gone.
    bool receive(std::span<std::byte> message, std::size_t begin) {
        auto const count = socket_.receive(message.subspan(filled_ - begin));
        filled_ += count.value_or(0);
        return count.has_value();
    }
    // Sends the challenge; returns whether the guest may belong to this job.
    bool challenge(tcp_identity const& self) {
        auto const answer = unpadded(greeting_.job) != self.job                ? tcp_answer::other_job
                            : (greeting_.has_secret != 0) != self.has_secret() ? tcp_answer::secret_missing
                                                                               : tcp_answer::welcome;
        challenge_ = {tcp_magic,  padded<128>(self.build),     random_bytes(), self.rank,
                      self.ranks, self.has_secret() ? 1U : 0U, answer};
        return socket_.send(bytes_of(challenge_)) == sizeof challenge_ && answer == tcp_answer::welcome;
    }

    tcp_socket socket_;
    clock::time_point until_;
    tcp_greeting greeting_{};
    tcp_challenge challenge_{};
    tcp_mac proof_{};
    std::size_t filled_ = 0;
};

// Moves all bytes with move() before `end`; returns whether that succeeded.
template <class Byte, class Move>
bool tcp_whole(tcp_socket const& socket, std::span<Byte> rest, short event, std::chrono::steady_clock::time_point end,
               Move const& move) {
    while (!rest.empty() && std::chrono::steady_clock::now() < end) {
        auto const done = move(rest);
        if (!done) return false;
        rest = rest.subspan(*done);
        pollfd wait{socket.number(), event, 0};
        if (*done == 0) ::poll(&wait, 1, 50);
    }
    return rest.empty();
}
inline bool send_all(tcp_socket const& to, std::span<std::byte const> bytes,
                     std::chrono::steady_clock::time_point end) {
    return tcp_whole(to, bytes, POLLOUT, end, [&](auto rest) { return to.send(rest); });
}
inline bool receive_all(tcp_socket const& from, std::span<std::byte> place, std::chrono::steady_clock::time_point end) {
    return tcp_whole(from, place, POLLIN, end, [&](auto rest) { return from.receive(rest); });
}

// Result of a greeting: the connection, or why there is none.
struct tcp_greeted {
    tcp_socket socket;
    std::string why{};
    bool is_final = false;                    // a rank of this job refuses, and would again
    tcp_answer answer = tcp_answer::welcome;  // if is_final
};

// Greets the listener at the other end of a connection. It must answer the greeting by `answer`; an answer shows a
// rank, which then has until `end` to answer the proof.
inline tcp_greeted greet(tcp_identity const& self, tcp_socket socket, int wanted, std::uint16_t port,
                         std::chrono::steady_clock::time_point answer, std::chrono::steady_clock::time_point end) {
    tcp_greeting const says{
        tcp_magic, padded<64>(self.job),       padded<128>(self.build), random_bytes(), self.rank, self.ranks, wanted,
        port,      self.has_secret() ? 1U : 0U};
    tcp_challenge heard{};
    if (!send_all(socket, bytes_of(says), answer)) return {{}, "it takes no greeting"};
    if (!receive_all(socket, std::as_writable_bytes(std::span(&heard, 1)), answer)) {
        bool const silent = std::chrono::steady_clock::now() >= answer;
        return {{}, silent ? "it does not answer a greeting" : "it closes the connection"};
    }
    if (heard.magic != tcp_magic) return {{}, "its answer is not from a rank of this version"};
    if (heard.answer == tcp_answer::other_job) return {{}, "it is a rank of another job"};
    if ((heard.has_secret != 0) != self.has_secret())
        return {{},
                self.has_secret() ? "it is a rank without a secret, but this rank has one"
                                  : "it is a rank with a secret, but this rank has none"};
    if (heard.answer != tcp_answer::welcome) return {{}, "it refuses the greeting"};
    tcp_verdict verdict{};
    tcp_ends const ends{to_wire(socket.here()), to_wire(socket.there())};
    auto const proof = tcp_proof(self, connects, ends, says, heard);
    if (!send_all(socket, bytes_of(proof), end) ||
        !receive_all(socket, std::as_writable_bytes(std::span(&verdict, 1)), end))
        return {{}, "it closes the connection after our proof"};
    if (verdict.answer == tcp_answer::wrong_proof) return {{}, "it has another secret than this rank"};
    if (!is_same(verdict.proof, tcp_proof(self, accepts, ends, says, heard, verdict.answer)))
        return {{}, "it cannot prove that it has the secret"};
    auto const refused = [&](std::string const& why) { return tcp_greeted{{}, why, true, verdict.answer}; };
    switch (verdict.answer) {
    case tcp_answer::welcome:
        return {std::move(socket)};
    case tcp_answer::other_count:
        return refused(sentence("it is rank ", heard.rank, " of ", heard.ranks, ", and this one is rank ", self.rank,
                                " of ", self.ranks));
    case tcp_answer::other_build:
        return refused(sentence("it was compiled as '", unpadded(heard.build), "', and this one as '", self.build,
                                "', so their bits may differ: start the same build on all machines"));
    case tcp_answer::taken:
        return refused(sentence("it already has a rank ", self.rank,
                                ": each rank number is one process, and two jobs need two ports"));
    default:
        return {{}, sentence("it is rank ", heard.rank, ", and not rank ", wanted)};
    }
}

}  // namespace calm::detail
