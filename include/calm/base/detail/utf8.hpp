#pragma once
// UTF-8 validation: where a character ends, and which bytes are not a character.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace calm {

// The kind of the first bytes of a text.
enum class utf8_kind {
    character,  // one complete, valid character (no surrogates, none above U+10FFFF, shortest form)
    prefix,     // the text ends inside a character that could still become valid
    invalid,    // the first byte does not start a valid character
};

// The kind of the first bytes of a non-empty text, and their number.
struct utf8_head {
    utf8_kind kind;    // of these bytes
    std::size_t size;  // in bytes: of the character, up to the end of the text (prefix), or 1 (invalid)
};

// Classifies the first character of `text`, which must not be empty.
[[nodiscard]] inline utf8_head first_character(std::string_view text) {
    auto const byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    std::uint8_t const lead = byte(0);
    if (lead < 0x80) return {utf8_kind::character, 1};
    std::size_t const size = lead >= 0xc2 && lead <= 0xdf   ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
    if (size == 0) return {utf8_kind::invalid, 1};
    // Only the second byte has bounds that depend on the first: overlong forms, surrogates, the end of Unicode.
    std::uint8_t const lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    std::uint8_t const highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (std::size_t i = 1; i < std::min(size, text.size()); ++i)
        if (byte(i) < (i == 1 ? lowest : 0x80) || byte(i) > (i == 1 ? highest : 0xbf)) return {utf8_kind::invalid, 1};
    return {text.size() < size ? utf8_kind::prefix : utf8_kind::character, std::min(size, text.size())};
}

// The length in bytes of the longest valid UTF-8 text that `text` begins with.
[[nodiscard]] inline std::size_t valid_prefix(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        if (static_cast<std::uint8_t>(text[at]) < 0x80) {
            ++at;
            continue;
        }
        utf8_head const head = first_character(text.substr(at));
        if (head.kind != utf8_kind::character) break;
        at += head.size;
    }
    return at;
}

// The length in bytes of the leading run of `text` that contains no complete valid character.
[[nodiscard]] inline std::size_t invalid_prefix(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size() && first_character(text.substr(at)).kind != utf8_kind::character) ++at;
    return at;
}

}  // namespace calm
