// Arbitrary bytes as the answer to a rank's greeting; the first byte chooses whether there is a secret. The result is a
// connection or an error message.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "calm/ranks/detail/tcp_greeting.hpp"
#include "connection_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace calm::detail;
    if (size == 0) return 0;
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto const found = greet(calm::test::rank_1(data[0] % 2 == 1),
                             calm::test::connection_with(std::span(data, size).subspan(1)), 0, 7, end, end);
    if (static_cast<bool>(found.socket) != found.why.empty()) std::abort();
    if (found.socket && (found.is_final || size < 1 + sizeof(tcp_challenge) + sizeof(tcp_verdict))) std::abort();
    return 0;
}
