#pragma once
// Words of commands that a shell runs, or that a user copies into one.

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace calm {

// The word in single quotes, unless it has only letters, digits and -_./:=,+@%.
inline std::string shell_word(std::string_view word) {
    auto const plain = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("-_./:=,+@%").find(c) != std::string_view::npos;
    };
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
    std::string text = "'";
    for (char const c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

}  // namespace calm
