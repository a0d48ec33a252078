#pragma once
// SHA-256 (FIPS 180-4), for fingerprints and manifests.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

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
    static constexpr std::array<std::uint32_t, 64> constants{
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

    void add_byte(std::uint8_t byte) {
        block_[filled_++] = byte;
        if (filled_ == block_.size()) compress();
    }

    // Raw pointers and a hand-written rotation, because without inlining std::array and std::rotr would dominate the
    // time of a checkpoint. Sanitizers would make it four times as slow; every index is a constant or below a constant.
    [[gnu::always_inline]] static std::uint32_t rotated(std::uint32_t x, int n) { return x >> n | x << (32 - n); }

    __attribute__((no_sanitize("address", "undefined"))) void compress() {
        std::array<std::uint32_t, 64> schedule{};
        std::uint32_t* const w = schedule.data();
        std::uint8_t const* const bytes = block_.data();
        for (std::size_t i = 0; i < 16; ++i)
            w[i] = std::uint32_t{bytes[4 * i]} << 24 | std::uint32_t{bytes[4 * i + 1]} << 16 |
                   std::uint32_t{bytes[4 * i + 2]} << 8 | bytes[4 * i + 3];
        for (std::size_t i = 16; i < 64; ++i) {
            std::uint32_t const a = w[i - 15];
            std::uint32_t const b = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
                   (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
        }
        std::uint32_t* const s = state_.data();
        std::uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
        std::uint32_t const* const k = constants.data();
        for (std::size_t i = 0; i < 64; ++i) {
            std::uint32_t const t =
                h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
            std::uint32_t const u = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
        }
        s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
        filled_ = 0;
    }

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::uint8_t, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t length_ = 0;
};

}  // namespace calm
