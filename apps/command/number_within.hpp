#pragma once
// Numbers of users as text.

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <type_traits>

namespace calm::apps {

// The whole text as a number from `least` to `most`, where it is one.
template <class Value> std::optional<Value> number_within(std::string_view text, Value least, Value most) {
    Value value{};
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool const whole = code == std::errc{} && end == text.data() + text.size();
    return whole && value >= least && value <= most ? std::optional(value) : std::nullopt;
}

// The same of an option: a whole number may be written as a decimal too, 1e3 or 1000.0, as it may in TOML.
template <class Value> std::optional<Value> option_number(std::string_view text, Value least, Value most) {
    auto const value = number_within(text, least, most);
    if constexpr (std::is_integral_v<Value>) {
        constexpr double largest = 0x1p53;  // beyond it a decimal may be another number
        auto const decimal = value ? std::nullopt : number_within(text, -largest, largest);
        bool const fits = decimal && std::trunc(*decimal) == *decimal && *decimal >= static_cast<double>(least) &&
                          *decimal <= static_cast<double>(most);
        if (fits) return static_cast<Value>(*decimal);
    }
    return value;
}

}  // namespace calm::apps
