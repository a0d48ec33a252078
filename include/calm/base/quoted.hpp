#pragma once
/// \file
/// Escapes and shortens untrusted text (names and values from files, paths, options, variables) for messages and
/// tables, so that no terminal interprets it.
/// \shows{tests/base/quoted_test.cpp,quoted_file_text_is_shortened}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "calm/base/detail/utf8.hpp"

namespace calm {

/// Whether a terminal may interpret a character or display the following text elsewhere: C0, DEL, C1, bidirectional
/// marks, line and paragraph separators.
constexpr bool is_control(std::uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/// The code point of one complete UTF-8 character.
constexpr std::uint32_t code_point(std::string_view character) {
    auto const lead = static_cast<std::uint8_t>(character[0]);
    std::uint32_t value = character.size() == 1 ? lead : lead & (0x7fU >> character.size());
    for (char const c : character.substr(1)) value = value << 6 | (static_cast<std::uint8_t>(c) & 0x3fU);
    return value;
}

/// Appends the lowest `digits` hexadecimal digits of a value.
inline void append_hex(std::string& to, std::uint32_t value, int digits) {
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) to += "0123456789abcdef"[value >> shift & 15U];
}

/// Escapes every control as `\n`, `\t`, `\r`, `\x1b` or `\u202e`, and every byte that is not UTF-8 as `\xff`.
/// Backslashes are not escaped, so escaping twice changes nothing. Controls in `kept` stay.
[[gnu::cold]] inline std::string escaped(std::string_view text, std::string_view kept = "") {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        auto const [kind, size] = first_character(text);
        bool const whole = kind == utf8_kind::character;
        auto const value = whole ? code_point(text.substr(0, size)) : static_cast<std::uint8_t>(text[0]);
        if (whole && (!is_control(value) || (size == 1 && kept.find(text[0]) != std::string_view::npos)))
            out += text.substr(0, size);
        else if (value == '\n' || value == '\t' || value == '\r')
            (out += '\\') += value == '\n' ? 'n' : value == '\t' ? 't' : 'r';
        else
            append_hex(out += size > 1 && whole ? "\\u" : "\\x", value, size > 1 && whole ? 4 : 2);
        text.remove_prefix(whole ? size : 1);
    }
    return out;
}

namespace detail {

// The beginning of a text: at most `most` bytes, cut between characters.
inline std::string_view beginning(std::string_view text, std::size_t most) {
    if (text.size() <= most) return text;
    text = text.substr(0, most);
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back)
        if (first_character(text.substr(text.size() - back)).kind == utf8_kind::prefix)
            return text.substr(0, text.size() - back);
    return text;
}

// Text as a JSON string.
inline std::string json_string(std::string_view text) {
    std::string json = "\"";
    for (char const c : text)
        if (c == '"' || c == '\\')
            (json += '\\') += c;
        else if (auto const byte = static_cast<std::uint8_t>(c); byte < 0x20)
            append_hex(json += "\\u", byte, 4);
        else
            json += c;
    return json + '"';
}

}  // namespace detail

/// Escapes bytes of a file for a message: at most 100 of them, then "...".
[[gnu::cold]] inline std::string printable(std::string_view bytes) {
    auto const shown = detail::beginning(bytes, 100);
    return escaped(shown) + (shown.size() < bytes.size() ? "..." : "");
}

/// printable() between two marks.
inline std::string in_quotes(std::string_view bytes, char mark = '\'') {
    return mark + printable(bytes) + mark;
}

/// The maximum bytes of untrusted text in one line, before escaping.
inline constexpr std::size_t longest_line = 4000;

/// Text as one line for people: controls, separators, bidirectional marks and bytes that are not UTF-8 are escaped. Of
/// a text longer than `most` bytes the middle is left out. Escaping twice changes nothing.
[[gnu::cold]] inline std::string printable_line(std::string_view text, std::size_t most = longest_line) {
    if (text.size() <= most) return escaped(text);
    auto const head = detail::beginning(text, most - most / 4);
    auto tail = text.substr(text.size() - most / 4);
    while (!tail.empty() && (static_cast<std::uint8_t>(tail[0]) & 0xc0U) == 0x80U) tail.remove_prefix(1);
    return escaped(head) + "[... " + std::to_string(text.size() - head.size() - tail.size()) + " bytes ...]" +
           escaped(tail);
}

}  // namespace calm
