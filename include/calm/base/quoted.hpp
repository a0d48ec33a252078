#pragma once
// Foreign text in sentences and tables: names and values of files, paths, options, variables. No terminal obeys it, and
// it is as long as a reader bears.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "calm/base/utf8.hpp"

namespace calm {

// Whether a terminal may obey a character, or show what follows in another place: C0, DEL and C1, the marks of
// direction, line and paragraph separators.
constexpr bool is_control(std::uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// The code point of one whole character.
constexpr std::uint32_t code_point(std::string_view character) {
    auto const lead = static_cast<std::uint8_t>(character[0]);
    std::uint32_t value = character.size() == 1 ? lead : lead & (0x7fU >> character.size());
    for (char const c : character.substr(1)) value = value << 6 | (static_cast<std::uint8_t>(c) & 0x3fU);
    return value;
}

// Adds the last hexadecimal digits of a number.
inline void append_hex(std::string& to, std::uint32_t value, int digits) {
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) to += "0123456789abcdef"[value >> shift & 15U];
}

// The text with every control as \n, \t, \r, \x1b or \u202e, and every byte that is no UTF-8 as \xff. A backslash stays
// one, so that what is escaped already stays as it is. `kept` are controls that may stand.
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

// The beginning of a text: at most so many bytes, of whole characters.
inline std::string_view beginning(std::string_view text, std::size_t most) {
    if (text.size() <= most) return text;
    text = text.substr(0, most);
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back)
        if (first_character(text.substr(text.size() - back)).kind == utf8_kind::prefix)
            return text.substr(0, text.size() - back);
    return text;
}

// Text as a string of JSON.
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

// Bytes of a file in a sentence: escaped, at most 100 of them, "..." for the rest.
[[gnu::cold]] inline std::string printable(std::string_view bytes) {
    auto const shown = detail::beginning(bytes, 100);
    return escaped(shown) + (shown.size() < bytes.size() ? "..." : "");
}

// The same between two marks.
inline std::string in_quotes(std::string_view bytes, char mark = '\'') {
    return mark + printable(bytes) + mark;
}

// How many bytes of a foreign text a line takes, before they are escaped.
inline constexpr std::size_t longest_line = 4000;

// A text as one line for people: controls, separators, marks of direction and bytes that are no UTF-8 are escaped, and
// of more than `most` bytes the middle is left out. What is escaped already stays as it is.
[[gnu::cold]] inline std::string printable_line(std::string_view text, std::size_t most = longest_line) {
    if (text.size() <= most) return escaped(text);
    auto const head = detail::beginning(text, most - most / 4);
    auto tail = text.substr(text.size() - most / 4);
    while (!tail.empty() && (static_cast<std::uint8_t>(tail[0]) & 0xc0U) == 0x80U) tail.remove_prefix(1);
    return escaped(head) + "[... " + std::to_string(text.size() - head.size() - tail.size()) + " bytes ...]" +
           escaped(tail);
}

}  // namespace calm
