#pragma once
// Numbers of users as text.

#include <charconv>
#include <optional>
#include <string_view>

namespace calm::apps {

// The whole text as a number from `least` to `most`, where it is one.
template <class Value> std::optional<Value> number_within(std::string_view text, Value least, Value most) {
    Value value{};
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool const whole = code == std::errc{} && end == text.data() + text.size();
    return whole && value >= least && value <= most ? std::optional(value) : std::nullopt;
}

}  // namespace calm::apps
