#pragma once
// Bounds the memory that a JSON text takes once it is parsed.

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

namespace calm::detail {

// Whether a JSON text has at most `most` values and punctuation characters ({ } [ ] : ,). A parser takes some twelve
// bytes for each, plus the strings. Any bytes are accepted and counted as a parser would count them.
[[nodiscard]] inline bool json_has_at_most(std::string_view json, std::size_t most) {
    if (json.size() <= most) return true;
    std::size_t count = 0;
    bool inside = false;  // in a number or literal
    for (std::size_t at = 0; at < json.size() && count <= most; ++at) {
        char const c = json[at];
        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
            inside = false;
        } else if (c == '"') {
            ++count;
            inside = false;
            for (++at;; ++at) {  // to the quote after an even number of backslashes
                at = std::min(json.find('"', at), json.size());
                std::size_t from = at;
                while (json[from - 1] == '\\') --from;
                if (at == json.size() || (at - from) % 2 == 0) break;
            }
        } else if (std::string_view("{}[]:,").find(c) != std::string_view::npos) {
            ++count;
            inside = false;
        } else {
            count += !std::exchange(inside, true);
        }
    }
    return count <= most;
}

}  // namespace calm::detail
