#pragma once
// A connection whose other end sends fixed bytes and then closes.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "calm/ranks/detail/socket.hpp"
#include "calm/ranks/detail/tcp_messages.hpp"

namespace calm::test {

// Our end of the connection; the other end has sent everything and closed its sending side.
inline detail::tcp_socket connection_with(std::span<std::uint8_t const> bytes) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    detail::tcp_socket here(ends[0]);
    detail::tcp_socket const there(ends[1]);
    if (there.send(std::as_bytes(bytes)) != bytes.size()) std::abort();
    there.end_sending();
    // Room for everything that we send.
    int const size = 1 << 20;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return here;
}

// Rank 1 of 3, with or without a secret; all its proofs are zeros, so that arbitrary bytes get as far as possible.
inline detail::tcp_identity rank_1(bool has_secret) {
    return {1,
            3,
            std::string(64, 'a'),
            "a build",
            has_secret ? "a secret" : "",
            [](std::span<std::byte const>, std::span<std::byte const>) { return tcp_mac{}; }};
}

}  // namespace calm::test
