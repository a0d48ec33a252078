#pragma once
// The first messages between two ranks that meet by TCP, as bytes, and their proof: tcp_greeting.hpp.

#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/sha256.hpp"
#include "calm/base/error.hpp"
#include "calm/ranks/detail/socket.hpp"

namespace calm {

// HMAC-SHA256 of a message, by a cryptography library: calm/ranks/openssl.hpp.
using tcp_mac = std::array<std::byte, 32>;
// Computes the HMAC-SHA256 of a message with a key.
using tcp_mac_function = tcp_mac (*)(std::span<std::byte const> key, std::span<std::byte const> message);

namespace detail {

// How one rank identifies itself to every other. The secret is never sent.
struct tcp_identity {
    int rank;
    int ranks;
    std::string job;    // 64 hexadecimal digits: tcp_job_digest()
    std::string build;  // how it was compiled
    std::string secret;
    tcp_mac_function mac;

    [[nodiscard]] bool has_secret() const { return !secret.empty(); }
};

// Digest of the job's name and of the port that all ranks were given.
inline std::string tcp_job_digest(std::string const& job, std::uint16_t port) {
    sha256 digest;
    digest.add(job);
    digest.add_u32(port);
    return digest.hex();
}

// The answer to a greeting.
enum class tcp_answer : std::uint32_t {
    welcome,
    other_job,
    secret_missing,
    wrong_proof,
    other_count,
    other_rank,
    taken,
    other_build
};

// The messages as they are sent: little-endian numbers, no padding.
struct tcp_greeting {
    std::array<char, 16> magic;
    std::array<char, 64> job;
    std::array<char, 128> build;
    std::array<std::byte, 32> nonce;
    std::int32_t rank;
    std::int32_t ranks;
    std::int32_t wanted;       // the rank that it wants to reach
    std::uint32_t port;        // where it listens
    std::uint32_t has_secret;  // 0 or 1
};
struct tcp_challenge {
    std::array<char, 16> magic;
    std::array<char, 128> build;
    std::array<std::byte, 32> nonce;
    std::int32_t rank;
    std::int32_t ranks;
    std::uint32_t has_secret;
    tcp_answer answer;  // welcome: no objection so far
};
struct tcp_verdict {
    tcp_mac proof;
    tcp_answer answer;
};
static_assert(sizeof(tcp_greeting) == 260 && sizeof(tcp_challenge) == 192 && sizeof(tcp_verdict) == 36);

// A socket address as it is sent.
struct tcp_wire_address {
    std::array<std::uint8_t, 16> bytes;
    std::uint16_t family;  // 4 or 6
    std::uint16_t port;
};
static_assert(sizeof(tcp_wire_address) == 20);

inline tcp_wire_address to_wire(socket_address const& a) {
    tcp_wire_address out{};
    if (a.bytes.ss_family == AF_INET) {
        std::memcpy(out.bytes.data(), &reinterpret_cast<sockaddr_in const*>(&a.bytes)->sin_addr, 4);
        out.family = 4;
    } else if (a.bytes.ss_family == AF_INET6) {
        std::memcpy(out.bytes.data(), &reinterpret_cast<sockaddr_in6 const*>(&a.bytes)->sin6_addr, 16);
        out.family = 6;
    } else {
        return out;
    }
    out.port = a.port();
    return out;
}
// Nothing for invalid bytes. `scope` is this machine's number of the interface, for link-local addresses.
inline std::optional<socket_address> from_wire(tcp_wire_address const& a, std::uint32_t scope) {
    socket_address out;
    if (a.port == 0 || (a.family != 4 && a.family != 6)) return std::nullopt;
    if (a.family == 4) {
        auto& in = reinterpret_cast<sockaddr_in&>(out.bytes);
        in.sin_family = AF_INET;
        std::memcpy(&in.sin_addr, a.bytes.data(), 4);
        out.size = sizeof in;
    } else {
        auto& in = reinterpret_cast<sockaddr_in6&>(out.bytes);
        in.sin6_family = AF_INET6;
        std::memcpy(&in.sin6_addr, a.bytes.data(), 16);
        in.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr) ? scope : 0;
        out.size = sizeof in;
    }
    out.set_port(a.port);
    return out;
}

// The two ends of a connection, the connecting end first.
using tcp_ends = std::array<tcp_wire_address, 2>;

inline constexpr std::array<char, 16> tcp_magic{'c', 'a', 'l', 'm', ' ', 'r', 'a', 'n', 'k', 's', ' ', '2'};

template <class Message> std::span<std::byte const> bytes_of(Message const& m) {
    return std::as_bytes(std::span(&m, 1));
}

template <std::size_t N> std::array<char, N> padded(std::string_view text) {
    std::array<char, N> out{};
    std::copy_n(text.begin(), std::min(text.size(), N), out.begin());
    return out;
}
template <std::size_t N> std::string unpadded(std::array<char, N> const& text) {
    return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

inline std::array<std::byte, 32> random_bytes() {
    std::array<std::byte, 32> bytes;
    require(::getentropy(bytes.data(), bytes.size()) == 0, errc::distributed,
            "expected random bytes of the system, found: ", system_text(errno));
    return bytes;
}

// Whether both are equal, in a time that does not show where they differ.
inline bool is_same(tcp_mac const& a, tcp_mac const& b) {
    std::byte differ{};
    for (std::size_t i = 0; i < a.size(); ++i) differ |= a[i] ^ b[i];
    return differ == std::byte{};
}

// The proof of one end: `role` says which end, `answer` is its answer. Zeros without a secret.
inline tcp_mac tcp_proof(tcp_identity const& self, std::string_view role, tcp_ends const& ends,
                         tcp_greeting const& greeting, tcp_challenge const& challenge,
                         tcp_answer answer = tcp_answer::welcome) {
    if (!self.has_secret()) return {};
    std::vector<std::byte> message;
    auto const add = [&](std::span<std::byte const> part) { message.insert(message.end(), part.begin(), part.end()); };
    add(std::as_bytes(std::span(role)));
    add(bytes_of(ends));
    add(bytes_of(greeting));
    add(bytes_of(challenge));
    add(bytes_of(answer));
    return self.mac(std::as_bytes(std::span(self.secret)), message);
}
inline constexpr std::string_view connects = "connects", accepts = "accepts.";  // equally long

}  // namespace detail

}  // namespace calm
