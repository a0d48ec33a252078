// Arbitrary bytes from a process that connects to a rank; the first byte chooses whether there is a secret. It is
// refused, or has sent a greeting of this job and a proof.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

#include "calm/ranks/detail/tcp_greeting.hpp"
#include "connection_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace calm::detail;
    if (size == 0) return 0;
    auto const self = calm::test::rank_1(data[0] % 2 == 1);
    tcp_guest guest(calm::test::connection_with(std::span(data, size).subspan(1)),
                    std::chrono::steady_clock::now() + std::chrono::seconds(60));
    auto state = tcp_guest::state::waiting;
    while (state == tcp_guest::state::waiting) state = guest.advance(self);
    if (state == tcp_guest::state::refused) return 0;
    auto const& said = guest.greeting();
    if (size < 1 + sizeof said + sizeof(calm::tcp_mac)) std::abort();
    if (said.magic != tcp_magic || unpadded(said.job) != self.job) std::abort();
    if ((said.has_secret != 0) != self.has_secret()) std::abort();
    static_cast<void>(unpadded(said.build));
    static_cast<void>(guest.answer(self, tcp_answer{data[0] / 2U % 8}));
    return 0;
}
