#pragma once
// GPT-2's mapping of bytes to printable characters, one per byte, in which tokenizer.json spells tokens.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "calm/base/detail/utf8.hpp"

namespace calm {

namespace detail {

// The code point of every byte: the byte itself if that is a printable Latin-1 character, otherwise the next one from
// U+0100.
inline constexpr auto letter_of_byte = [] {
    std::array<std::uint16_t, 256> letters{};
    std::uint16_t next = 256;
    for (std::uint16_t byte = 0; byte < 256; ++byte) {
        bool const itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        letters[byte] = itself ? byte : next++;
    }
    return letters;
}();

// The byte of every code point, or -1.
inline constexpr auto byte_of_letter = [] {
    std::array<std::int16_t, 0x144> bytes{};
    bytes.fill(-1);
    for (std::int16_t byte = 0; byte < 256; ++byte) bytes[letter_of_byte[static_cast<std::size_t>(byte)]] = byte;
    return bytes;
}();

}  // namespace detail

// Maps bytes to these characters, as UTF-8.
[[nodiscard]] inline std::string letters_of_bytes(std::string_view bytes) {
    std::string out;
    for (char const c : bytes) {
        auto const letter = detail::letter_of_byte[static_cast<std::uint8_t>(c)];
        if (letter < 0x80) {
            out += static_cast<char>(letter);
        } else {
            out += static_cast<char>(0xc0 | letter >> 6);
            out += static_cast<char>(0x80 | (letter & 0x3f));
        }
    }
    return out;
}

// Maps characters in UTF-8 back to bytes; nullopt if one is not in the mapping.
[[nodiscard]] inline std::optional<std::string> bytes_of_letters(std::string_view letters) {
    std::string out;
    out.reserve(letters.size());
    for (std::size_t i = 0; i < letters.size(); ++i) {
        unsigned letter = static_cast<std::uint8_t>(letters[i]);
        if (letter >= 0x80) {
            if (letter < 0xc2 || letter > 0xdf || i + 1 == letters.size()) return std::nullopt;
            unsigned const low = static_cast<std::uint8_t>(letters[++i]);
            if (low < 0x80 || low > 0xbf) return std::nullopt;
            letter = (letter & 0x1fu) << 6 | (low & 0x3fu);
        }
        if (letter >= detail::byte_of_letter.size() || detail::byte_of_letter[letter] < 0) return std::nullopt;
        out += static_cast<char>(detail::byte_of_letter[letter]);
    }
    return out;
}

}  // namespace calm
