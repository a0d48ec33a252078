#pragma once
// Numbers as text.

#include <charconv>
#include <string>

namespace calm {

// As short as gives the number back.
inline std::string shortest(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
// Of at most six digits.
inline std::string six_digits(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

}  // namespace calm
