#pragma once
// Parses numbers in user input.

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <type_traits>

namespace calm::apps {

// Parses the whole text as a number from `least` to `most`, or returns nothing.
template <class Value> std::optional<Value> number_within(std::string_view text, Value least, Value most) {
    Value value{};
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool const whole = code == std::errc{} && end == text.data() + text.size();
    return whole && value >= least && value <= most ? std::optional(value) : std::nullopt;
}

// As number_within(), but a whole number may also be written as a decimal, 1e3 or 1000.0, as in TOML.
template <class Value> std::optional<Value> option_number(std::string_view text, Value least, Value most) {
    auto const value = number_within(text, least, most);
    if constexpr (std::is_integral_v<Value>) {
        constexpr double largest = 0x1p53;  // larger decimals are not exact
        auto const decimal = value ? std::nullopt : number_within(text, -largest, largest);
        bool const fits = decimal && std::trunc(*decimal) == *decimal && *decimal >= static_cast<double>(least) &&
                          *decimal <= static_cast<double>(most);
        if (fits) return static_cast<Value>(*decimal);
    }
    return value;
}

}  // namespace calm::apps
