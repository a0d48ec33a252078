#pragma once
// Explains JSON errors that a parser does not explain, and accepts valid JSON that it refuses.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace calm::detail {

// Whether a text is a number by RFC 8259, of any magnitude.
[[nodiscard, gnu::cold]] inline bool is_json_number(std::string_view text) {
    auto const take = [&](std::string_view any) {
        bool const found = !text.empty() && any.find(text.front()) != std::string_view::npos;
        if (found) text.remove_prefix(1);
        return found;
    };
    auto const digits = [&] {
        bool any = false;
        while (take("0123456789")) any = true;
        return any;
    };
    take("-");
    if (!take("0") && !digits()) return false;
    if (take(".") && !digits()) return false;
    if (take("eE")) {
        take("+-");
        if (!digits()) return false;
    }
    return text.empty();
}

// The index after the JSON string that begins at `at`, or the end of the text.
[[nodiscard, gnu::cold]] inline std::size_t end_of_json_string(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    return at < text.size() ? at + 1 : text.size();
}

// Calls f(at, word) for each number and literal outside of strings in a JSON text, until f returns true.
template <class F> void any_json_word(std::string_view text, F const& f) {
    constexpr std::string_view ends = " \t\r\n,:[]{}\"";
    for (std::size_t at = 0; at < text.size();) {
        if (text[at] == '"') {
            at = end_of_json_string(text, at);
        } else if (ends.find(text[at]) != std::string_view::npos) {
            ++at;
        } else {
            auto const word = text.substr(at, text.find_first_of(ends, at) - at);
            if (f(at, word)) return;
            at += word.size();
        }
    }
}

// Replaces every number in a JSON text by 0 and spaces. JSON allows numbers of any size, the parser does not; for
// callers that ignore numbers.
[[gnu::cold]] inline void forget_json_numbers(std::string& text) {
    any_json_word(text, [&](std::size_t at, std::string_view word) {
        if (is_json_number(word)) text.replace(at, word.size(), "0" + std::string(word.size() - 1, ' '));
        return false;
    });
}

// The first NaN, Infinity or -Infinity, which Python writes although JSON lacks them.
[[nodiscard, gnu::cold]] inline std::optional<std::string> word_of_python_in(std::string_view text) {
    std::optional<std::string> found;
    any_json_word(text, [&](std::size_t, std::string_view word) {
        if (word == "NaN" || word == "Infinity" || word == "-Infinity") found = std::string(word);
        return found.has_value();
    });
    return found;
}

// The first escape of a lone surrogate in the strings of a JSON text, like \ud83d without its other half.
[[nodiscard, gnu::cold]] inline std::optional<std::string_view> lone_surrogate_in(std::string_view text) {
    auto const half = [&](std::size_t at, char a, char b) {  // whether \uDxxx, third digit a to b, is here
        auto const four = text.substr(std::min(at, text.size()), 6);
        if (four.size() < 6 || four[0] != '\\' || four[1] != 'u' || (four[2] | 0x20) != 'd') return false;
        char const digit = static_cast<char>(four[3] | (four[3] > '9' ? 0x20 : 0));
        return digit >= a && digit <= b &&
               four.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string_view::npos;
    };
    for (std::size_t at = text.find('"'); at < text.size(); at = text.find('"', at)) {
        std::size_t const end = end_of_json_string(text, at);
        for (++at; at < end; ++at) {
            if (text[at] != '\\') continue;
            bool const first = half(at, '8', 'b');
            if (half(at, 'c', 'f') || (first && !half(at + 6, 'c', 'f'))) return text.substr(at, 6);
            at += first ? 11 : 1;
        }
        at = end;
    }
    return std::nullopt;
}

}  // namespace calm::detail
