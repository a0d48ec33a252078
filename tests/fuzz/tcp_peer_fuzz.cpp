// Arbitrary bytes from a connected rank; the first three bytes are the sizes of the expected messages. The messages are
// filled in, or the kind of error is reported.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "calm/ranks/detail/tcp_peer.hpp"
#include "connection_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using calm::detail::tcp_peer;
    if (size < 3) return 0;
    tcp_peer peer(calm::test::connection_with(std::span(data, size).subspan(3)));
    std::array<std::vector<std::byte>, 3> places;
    for (std::size_t i = 0; i < places.size(); ++i) {
        places[i].resize(data[i]);
        peer.expect(places[i]);
    }
    auto what = tcp_peer::event::none;
    while (what == tcp_peer::event::none && peer.is_expecting()) what = peer.drain();
    if (!peer.is_expecting()) what = peer.drain();  // data received early, and the end
    switch (what) {
    case tcp_peer::event::none:
        if (peer.messages_received() != places.size()) std::abort();
        break;
    case tcp_peer::event::ended:
        if (!peer.has_ended()) std::abort();
        break;
    case tcp_peer::event::unequal:
        if (peer.expected_bytes() == peer.found_bytes()) std::abort();
        break;
    case tcp_peer::event::failed:
        if (peer.failure().empty() || peer.failure().size() > tcp_peer::max_failure_bytes) std::abort();
        break;
    case tcp_peer::event::nonsense:
        break;
    }
    return 0;
}
