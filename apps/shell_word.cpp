#include "shell_word.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace calm::apps {

std::string shell_word(std::string const& word) {
    auto const plain = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("-_./:=,+@%").find(c) != std::string_view::npos;
    };
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
    std::string text = "'";
    for (char const c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

}  // namespace calm::apps
