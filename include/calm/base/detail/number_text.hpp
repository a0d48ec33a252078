#pragma once
// Numbers to text.

#include <charconv>
#include <string>

namespace calm {

// The shortest text that parses back to the same value.
inline std::string shortest(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
// At most six significant digits.
inline std::string six_digits(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

}  // namespace calm
