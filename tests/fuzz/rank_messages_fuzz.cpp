// Arbitrary bytes as messages between ranks in the library (settings, results of work pieces): refused, or complete.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/ranks/message.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

// All ranks have sent these bytes.
class told final : public calm::distributed_evaluation {
public:
    explicit told(std::span<std::byte const> bytes) : bytes_(bytes) {}
    [[nodiscard]] bool is_own(calm::index_t) const override { return true; }
    void heartbeat() override {}
    std::vector<std::byte> gather(std::span<std::byte const>, std::uint64_t most) override {
        if (bytes_.size() > most) bytes_ = bytes_.first(static_cast<std::size_t>(most));
        return {bytes_.begin(), bytes_.end()};
    }
    void add_up(std::span<calm::index_t>) override {}
    void require_same_settings(std::span<calm::setting const>) override {}

private:
    std::span<std::byte const> bytes_;
};

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
        told ranks(bytes);
        calm::index_t taken = 0;
        calm::detail::piece_results<calm::index_t> results(
            &ranks,
            [&](calm::index_t const& one) {
                if (one < 0 || ++taken > pieces) std::abort();
            },
            [](calm::index_t const& one) { return one >= 0; });
        results.end(pieces);
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
