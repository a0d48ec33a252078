#pragma once
// Fast path for pieces that ASCII alone decides under Llama 3's and Qwen 2's patterns. Most pieces of most texts need
// no regular expression matcher.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace calm::detail {

enum class byte_kind : std::uint8_t { sign, letter, digit, space, line_end, beyond_ascii };

[[nodiscard]] inline byte_kind kind_of_byte(char c) {
    static constexpr auto kinds = [] {
        std::array<byte_kind, 256> all{};  // signs
        for (std::size_t i = 0; i < 26; ++i) all['a' + i] = all['A' + i] = byte_kind::letter;
        for (std::size_t i = 0; i < 10; ++i) all['0' + i] = byte_kind::digit;
        all[' '] = all['\t'] = all['\v'] = all['\f'] = byte_kind::space;
        all['\r'] = all['\n'] = byte_kind::line_end;
        std::fill(all.begin() + 0x80, all.end(), byte_kind::beyond_ascii);
        return all;
    }();
    return kinds[static_cast<std::uint8_t>(c)];
}

// The length of the first piece of a non-empty text. It is 0 if ASCII alone does not decide: the piece or the next
// character is beyond ASCII, or the piece reaches the end of a text that is `open` (may continue). Follows the
// alternatives of piece_pattern (pretokenizer.hpp) in order; numbers have at most `digits` digits.
[[nodiscard]] inline std::size_t ascii_piece(std::string_view text, bool open, std::size_t digits) {
    using enum byte_kind;
    std::size_t const size = text.size();
    // The end of the run of characters of the given kinds that starts at `at`.
    auto const run = [&](std::size_t at, auto... kinds) {
        while (at < size && ((kind_of_byte(text[at]) == kinds) || ...)) ++at;
        return at;
    };
    // Whether no following character can extend a run that ends at `at`.
    auto const ends = [&](std::size_t at) { return at < size ? kind_of_byte(text[at]) != beyond_ascii : !open; };
    auto const decided = [&](std::size_t end) { return ends(end) ? end : 0; };
    auto const is = [&](std::size_t at, byte_kind kind) { return at < size && kind_of_byte(text[at]) == kind; };

    byte_kind const first = kind_of_byte(text[0]);
    if (first == beyond_ascii || !ends(1)) return 0;
    if (text[0] == '\'' && is(1, letter)) {
        auto const lower = [&](std::size_t at) { return static_cast<char>(text[at] | 0x20); };
        char const a = lower(1);
        if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
        if (!ends(2)) return 0;
        if (is(2, letter) && ((lower(2) == 'e' && (a == 'r' || a == 'v')) || (lower(2) == 'l' && a == 'l'))) return 3;
    }
    if (first == letter || (is(1, letter) && (first == sign || first == space))) return decided(run(1, letter));
    if (first == digit) {
        std::size_t end = 1;
        while (end < digits && is(end, digit)) ++end;
        return end == digits ? end : decided(end);
    }
    if (first == sign || (text[0] == ' ' && is(1, sign))) {
        std::size_t const end = run(1, sign);
        return ends(end) ? decided(run(end, line_end)) : 0;
    }
    std::size_t const end = run(1, space, line_end);
    if (!ends(end)) return 0;
    for (std::size_t last = end; last > 0; --last)
        if (kind_of_byte(text[last - 1]) == line_end) return last;
    return end == size || end == 1 ? end : end - 1;
}

}  // namespace calm::detail
