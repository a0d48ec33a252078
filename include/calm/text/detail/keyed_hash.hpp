#pragma once
// Hashing that resists chosen collisions.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

#include "calm/text/detail/byte_words.hpp"

namespace calm::detail {

// SipHash-1-3 (Aumasson, Bernstein) with a random key per process, so that the author of a file cannot choose strings
// that collide. It may affect positions in hash tables, never results.
class keyed_hash {
public:
    // With the key of this process.
    keyed_hash() : keyed_hash(of_process()) {}
    // With a known key, for tests.
    constexpr keyed_hash(std::uint64_t k0, std::uint64_t k1) : k0_(k0), k1_(k1) {}

    // Hashes bytes, possibly none.
    [[nodiscard]] std::size_t operator()(std::string_view bytes) const {
        state s(k0_, k1_);
        char const* at = bytes.data();
        std::size_t const size = bytes.size();
        for (std::size_t left = size; left >= 8; left -= 8, at += 8) s.take(word_of<std::uint64_t>(at));
        return s.finish(std::uint64_t{size} << 56 | tail_of(at, size % 8));
    }
    // Hashes the eight bytes of a number.
    [[nodiscard]] std::size_t operator()(std::uint64_t word) const {
        state s(k0_, k1_);
        s.take(word);
        return s.finish(std::uint64_t{sizeof(word)} << 56);
    }

private:
    struct state {
        std::uint64_t v0, v1, v2, v3;

        state(std::uint64_t k0, std::uint64_t k1) :
            v0(k0 ^ 0x736f6d6570736575u), v1(k1 ^ 0x646f72616e646f6du), v2(k0 ^ 0x6c7967656e657261u),
            v3(k1 ^ 0x7465646279746573u) {}
        void round() {
            v0 += v1, v2 += v3;
            v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
            v0 = std::rotl(v0, 32);
            v2 += v1, v0 += v3;
            v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
            v2 = std::rotl(v2, 32);
        }
        void take(std::uint64_t word) {
            v3 ^= word;
            round();
            v0 ^= word;
        }
        std::uint64_t finish(std::uint64_t last) {
            take(last);
            v2 ^= 0xff;
            round(), round(), round();
            return v0 ^ v1 ^ v2 ^ v3;
        }
    };

    static keyed_hash const& of_process() {
        static keyed_hash const drawn = [] {
            std::random_device random;
            auto const word = [&] { return std::uint64_t{random()} << 32 | random(); };
            std::uint64_t const k0 = word();
            return keyed_hash(k0, word());
        }();
        return drawn;
    }

    std::uint64_t k0_;
    std::uint64_t k1_;
};

}  // namespace calm::detail
