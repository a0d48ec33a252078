#pragma once
// Numbers as text.

#include <charconv>
#include <string>

namespace calm::detail {

// As short as it can be read back, or of six digits.
inline std::string shortest(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
inline std::string six_digits(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

}  // namespace calm::detail
