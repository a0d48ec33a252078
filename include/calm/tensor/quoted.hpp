#pragma once
// Parts of files in sentences.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "calm/tensor/utf8.hpp"

namespace calm::detail {

// Bytes of a file in a sentence: at most 100 of them and whole characters, "..." for the rest. What is no UTF-8, and
// every control character (C0, DEL and C1), is shown as '?', so no terminal obeys it.
inline std::string printable(std::string_view bytes) {
    constexpr std::size_t longest = 100;
    bool const cut = bytes.size() > longest;
    std::string out;
    for (auto rest = bytes.substr(0, longest); !rest.empty();) {
        auto const [kind, size] = first_character(rest);
        if (cut && kind == utf8_kind::prefix) break;
        auto const lead = static_cast<std::uint8_t>(rest[0]);
        bool const control =
            lead < 0x20 || lead == 0x7f || (lead == 0xc2 && size == 2 && static_cast<std::uint8_t>(rest[1]) < 0xa0);
        out += kind == utf8_kind::character && !control ? rest.substr(0, size) : "?";
        rest.remove_prefix(size);
    }
    return cut ? out + "..." : out;
}

// The same between two marks.
inline std::string in_quotes(std::string_view bytes, char mark = '\'') {
    return mark + printable(bytes) + mark;
}

}  // namespace calm::detail
