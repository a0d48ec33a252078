#pragma once
// The subset of regular expressions that a pattern of pieces may use.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "calm/base/detail/utf8.hpp"
#include "calm/base/error.hpp"

namespace calm::detail {

// The pattern with \s and \S expanded, because PCRE2's \s differs from Unicode's White_Space. Refuses syntax that other
// regular expression engines interpret differently or lack.
[[nodiscard, gnu::cold]] inline std::string spelled_out(std::string_view pattern) {
    std::string const space = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
    auto const refuse = [](std::string_view what) {
        throw error(errc::tokenizer, "\"" + std::string(what) +
                                         "\" in the pattern of pieces is not supported: expected alternatives, "
                                         "groups, classes, \\s, \\S, \\d, \\p{..} and repetitions");
    };
    require(pattern.size() <= 4096, errc::tokenizer, "expected a pattern of pieces of at most 4096 bytes");
    require(valid_prefix(pattern) == pattern.size(), errc::tokenizer, "the pattern of pieces is not valid UTF-8");
    std::string out;
    bool in_class = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        char const c = pattern[i];
        std::string_view const rest = pattern.substr(i);
        if (c == '\\') {
            char const escaped = rest.size() > 1 ? rest[1] : 'z';
            bool const letter = (escaped >= 'a' && escaped <= 'z') || (escaped >= 'A' && escaped <= 'Z');
            bool const digit = escaped >= '0' && escaped <= '9';
            bool const known = std::string_view("sSdpPrnt").find(escaped) != std::string_view::npos;
            bool const ascii = static_cast<std::uint8_t>(escaped) < 0x80;
            if (digit || !ascii || (letter && !known) || (escaped == 'S' && in_class)) refuse(rest.substr(0, 2));
            ++i;
            if (rest.starts_with("\\p{") || rest.starts_with("\\P{")) {
                std::string_view const property = rest.substr(0, rest.find('}') + 1);
                if (property.empty()) refuse(rest.substr(0, 3));
                out += property;
                i += property.size() - 2;
            } else if (escaped != 's' && escaped != 'S') {
                out += rest.substr(0, 2);
            } else {
                out += in_class ? space : (escaped == 'S' ? "[^" : "[") + space + "]";
            }
            continue;
        }
        if (in_class) {
            if (c == '[' || rest.starts_with("&&")) refuse(rest.substr(0, 2));
            in_class = c != ']';
        } else if (c == '[') {
            in_class = true;
            if (rest.starts_with("[]") || rest.starts_with("[^]")) refuse(rest.substr(0, 3));
        } else if (c == '^' || c == '$' || c == '.' || rest.starts_with("(*") || rest.starts_with("}+")) {
            refuse(rest.substr(0, 2));
        } else if (rest.starts_with("(?") && !rest.starts_with("(?:") && !rest.starts_with("(?i:") &&
                   !rest.starts_with("(?=") && !rest.starts_with("(?!")) {
            refuse(rest.substr(0, 4));
        }
        out += c;
    }
    return out;
}

}  // namespace calm::detail
