// Arbitrary bytes as messages between ranks in the library (settings, results of work pieces): refused, or complete.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/ranks/detail/message.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

template <class F> void refused_or(F const& f) {
    try {
        f();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::distributed) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    auto const bytes = std::as_bytes(std::span(data, size));
    refused_or([&] {
        auto const all = calm::detail::settings_in({bytes, "fuzz"});
        if (!std::ranges::equal(calm::detail::message_of(all), bytes)) std::abort();
        std::vector<calm::setting> const own{{"--seed", "1"}};
        if (calm::detail::first_difference(1, own, all).empty() && all.size() != 1) std::abort();
    });
    refused_or([&] {
        constexpr calm::index_t pieces = 20;
        auto const results =
            calm::detail::results_in<calm::index_t>(bytes, pieces, [](calm::index_t const& one) { return one >= 0; });
        if (std::ssize(results) > pieces) std::abort();
        for (auto const& one : results)
            if (one.result < 0) std::abort();
    });
    refused_or([&] {
        if (size < 32) return;
        std::vector<std::uint64_t> sizes(4);
        std::memcpy(sizes.data(), data, 32);
        calm::messages const all(sizes, 1 << 20, 1 << 20);
        std::size_t sum = 0;
        for (int r = 0; r < 4; ++r) sum += all.of(r).size();
        if (sum > 1 << 20) std::abort();
    });
    return 0;
}
