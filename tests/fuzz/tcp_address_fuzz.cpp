// Arbitrary bytes as an address announced by rank 0: refused, or an address that encodes to the same bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "calm/ranks/detail/tcp_messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace calm::detail;
    tcp_wire_address told{};
    if (size < sizeof told) return 0;
    std::memcpy(&told, data, sizeof told);
    auto const read = from_wire(told, 2);
    if (!read) return 0;
    static_cast<void>(address_text(*read));
    auto const again = to_wire(*read);
    auto const bytes = told.family == 4 ? 4U : 16U;
    if (again.family != told.family || again.port != told.port) std::abort();
    if (std::memcmp(again.bytes.data(), told.bytes.data(), bytes) != 0) std::abort();
    return 0;
}
