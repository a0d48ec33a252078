#pragma once
// SHA-256 (FIPS 180-4), for fingerprints and manifests.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "calm/base/detail/sha256_blocks.hpp"

namespace calm {

// Incremental SHA-256: add bytes in pieces of any size, then call hex() once.
class sha256 {
public:
    // Adds bytes to the message.
    void add(std::string_view bytes) {
        length_ += bytes.size();
        while (!bytes.empty()) {
            std::size_t const n = std::min(bytes.size(), block_.size() - filled_);
            std::memcpy(block_.data() + filled_, bytes.data(), n);
            bytes.remove_prefix(n);
            if ((filled_ += n) == block_.size()) compress();
        }
    }

    // Adds a 32-bit number, little-endian.
    void add_u32(std::uint32_t value) {
        std::array<char, 4> bytes{};
        for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xffu);
        add({bytes.data(), bytes.size()});
    }

    // The digest of everything added, as 64 lower-case hexadecimal digits. The object must not be used afterwards.
    [[nodiscard]] std::string hex() {
        std::uint64_t const bits = 8 * length_;
        add_byte(0x80);
        while (filled_ != 56) add_byte(0);
        for (int shift = 56; shift >= 0; shift -= 8) add_byte(static_cast<std::uint8_t>(bits >> shift));
        std::string digits;
        for (std::uint32_t const word : state_)
            for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[word >> shift & 15u];
        return digits;
    }

private:
    void add_byte(std::uint8_t byte) {
        block_[filled_++] = byte;
        if (filled_ == block_.size()) compress();
    }

    void compress() {
#ifdef __x86_64__
        if (detail::has_sha_instructions())
            detail::add_sha256_block_by_instructions(state_.data(), block_.data());
        else
#endif
            detail::add_sha256_block(state_.data(), block_.data());
        filled_ = 0;
    }

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::uint8_t, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t length_ = 0;
};

}  // namespace calm
