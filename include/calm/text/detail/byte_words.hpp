#pragma once
// Short byte strings as integers.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace calm::detail {

// The first sizeof(Word) bytes, in native byte order.
template <class Word> [[nodiscard]] Word word_of(char const* from) {
    Word word = 0;
    std::memcpy(&word, from, sizeof(Word));
    return word;
}

// Fewer than eight bytes as an integer, in native byte order.
[[nodiscard]] inline std::uint64_t tail_of(char const* from, std::size_t size) {
    if (size >= 4)
        return word_of<std::uint32_t>(from) | std::uint64_t{word_of<std::uint32_t>(from + size - 4)} << (8 * size - 32);
    if (size == 0) return 0;
    auto const byte = [&](std::size_t i) { return std::uint64_t{static_cast<std::uint8_t>(from[i])} << (8 * i); };
    return byte(0) | byte(size / 2) | byte(size - 1);
}

}  // namespace calm::detail
