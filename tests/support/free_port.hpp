#pragma once
// TCP ports for the ranks of a test.

#include <cstdint>

#include "calm/ranks/detail/socket.hpp"

namespace calm::test {

// A port of 127.0.0.1 that is free now.
inline std::uint16_t free_port() {
    return detail::tcp_socket::listening(detail::addresses_of("127.0.0.1", 0).front()).here().port();
}

}  // namespace calm::test
