#pragma once
// The compression function of SHA-256 (FIPS 180-4, section 6.2.2), with the SHA instructions of x86-64 where the
// processor has them.

#include <array>
#include <cstddef>
#include <cstdint>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace calm::detail {

inline constexpr std::array<std::uint32_t, 64> sha256_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Raw pointers and a hand-written rotation, because without inlining std::array and std::rotr would dominate the time
// of a checkpoint. Sanitizers would make it four times as slow; every index is a constant or below a constant.
[[gnu::always_inline]] inline std::uint32_t rotated(std::uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

// Adds one block of 64 bytes to the state.
__attribute__((no_sanitize("address", "undefined"))) inline void add_sha256_block(std::uint32_t* s,
                                                                                  std::uint8_t const* bytes) {
    std::array<std::uint32_t, 64> schedule{};
    std::uint32_t* const w = schedule.data();
    for (std::size_t i = 0; i < 16; ++i)
        w[i] = std::uint32_t{bytes[4 * i]} << 24 | std::uint32_t{bytes[4 * i + 1]} << 16 |
               std::uint32_t{bytes[4 * i + 2]} << 8 | bytes[4 * i + 3];
    for (std::size_t i = 16; i < 64; ++i) {
        std::uint32_t const a = w[i - 15];
        std::uint32_t const b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
               (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    std::uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    std::uint32_t const* const k = sha256_constants.data();
    for (std::size_t i = 0; i < 64; ++i) {
        std::uint32_t const t =
            h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
        std::uint32_t const u = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
}

#ifdef __x86_64__
// Whether the processor has the SHA instructions.
inline bool has_sha_instructions() {
    static bool const found = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __builtin_cpu_supports("sse4.1") != 0 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
               (b >> 29 & 1u) != 0;
    }();
    return found;
}

// Four 32-bit words and the bytes of a register. Compilers' vector extensions instead of <immintrin.h>, which takes
// longer to compile than all of this folder.
using sha_words [[gnu::vector_size(16)]] = int;
using sha_bytes [[gnu::vector_size(16)]] = char;

// Adds one block of 64 bytes to the state, by the SHA instructions.
__attribute__((target("sha,sse4.1"), no_sanitize("address", "undefined"))) inline void
add_sha256_block_by_instructions(std::uint32_t* s, std::uint8_t const* bytes) {
    auto const load = [](void const* from) __attribute__((target("sha,sse4.1"))) {
        sha_words loaded;
        __builtin_memcpy(&loaded, from, sizeof(loaded));
        return loaded;
    };
    // The instructions hold the state as the words (F E B A) and (H G D C), lowest first.
    sha_words const abcd = load(s);
    sha_words const efgh = load(s + 4);
    sha_words const abef = __builtin_shufflevector(abcd, efgh, 5, 4, 1, 0);
    sha_words const cdgh = __builtin_shufflevector(abcd, efgh, 7, 6, 3, 2);

    sha_bytes const big_endian{3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
    sha_words w[4];
    for (int i = 0; i < 4; ++i) w[i] = sha_words(__builtin_ia32_pshufb128(sha_bytes(load(bytes + 16 * i)), big_endian));
    sha_words x = abef, y = cdgh;
    for (int i = 0; i < 16; ++i) {
        sha_words& now = w[i % 4];
        if (i >= 4) {
            sha_words const last = w[(i + 3) % 4];
            sha_words const before_last = __builtin_shufflevector(w[(i + 2) % 4], last, 1, 2, 3, 4);
            now = __builtin_ia32_sha256msg2(__builtin_ia32_sha256msg1(now, w[(i + 1) % 4]) + before_last, last);
        }
        sha_words const k = now + load(sha256_constants.data() + 4 * i);
        y = __builtin_ia32_sha256rnds2(y, x, k);
        x = __builtin_ia32_sha256rnds2(x, y, __builtin_shufflevector(k, k, 2, 3, 0, 0));
    }
    x += abef;
    y += cdgh;
    sha_words const sum[2] = {__builtin_shufflevector(x, y, 3, 2, 7, 6), __builtin_shufflevector(x, y, 1, 0, 5, 4)};
    __builtin_memcpy(s, &sum, sizeof(sum));
}
#endif

}  // namespace calm::detail
