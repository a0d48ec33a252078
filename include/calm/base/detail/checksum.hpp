#pragma once
// A checksum for files, weights and texts.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace calm {

// A checksum of bytes that come in chunks. Detects accidents, not attacks.
class checksum {
public:
    // Adds a chunk of any size. Where chunks end is part of the checksum: a sum of the same bytes in other chunks
    // differs.
    void add(std::span<std::byte const> bytes) {
        if (bytes.empty()) return;
        std::array<std::uint64_t, 4> lanes{state_, ~state_, 0x9e3779b97f4a7c15U, bytes.size()};
        for (; !bytes.empty(); bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), 32))) {
            std::array<std::uint64_t, 4> four{};
            std::memcpy(four.data(), bytes.data(), std::min<std::size_t>(bytes.size(), 32));
            for (std::size_t i = 0; i < 4; ++i) lanes[i] = std::rotl((lanes[i] ^ four[i]) * 0xd6e8feb86659fd93U, 32);
        }
        for (std::uint64_t const lane : lanes) state_ = std::rotl(state_ ^ lane, 23) * 0xd6e8feb86659fd93U;
    }
    // The checksum of everything added.
    [[nodiscard]] std::uint64_t value() const { return state_; }

private:
    std::uint64_t state_ = 0;
};

}  // namespace calm
