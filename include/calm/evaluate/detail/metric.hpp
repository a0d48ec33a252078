#pragma once
// Named values as one line of JSON.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/quoted.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

// One key of a JSON object with its value.
struct metric {
    std::string_view name;  // the key
    // Numbers that are not finite become null.
    std::variant<double, index_t, std::uint64_t, bool, std::string_view, std::vector<double>> value;
};

namespace detail {

inline void append_json(std::string& line, double value) {
    line += std::isfinite(value) ? shortest(value) : "null";
}
inline void append_json(std::string& line, index_t value) {
    line += std::to_string(value);
}
inline void append_json(std::string& line, std::uint64_t value) {
    line += std::to_string(value);
}
inline void append_json(std::string& line, bool value) {
    line += value ? "true" : "false";
}
inline void append_json(std::string& line, std::string_view value) {
    line += json_string(value);
}
inline void append_json(std::string& line, std::vector<double> const& values) {
    line += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i > 0) line += ',';
        append_json(line, values[i]);
    }
    line += ']';
}

}  // namespace detail

// The metrics as a JSON object, on one line and in order. Numbers have enough digits to be read back exactly, or are
// null if not finite. Strings must be UTF-8.
inline std::string to_json(std::span<metric const> metrics) {
    std::string line = "{";
    for (auto const& [name, value] : metrics) {
        if (line.size() > 1) line += ',';
        detail::append_json(line, name);
        line += ':';
        std::visit([&](auto const& v) { detail::append_json(line, v); }, value);
    }
    return line + "}";
}

}  // namespace calm
