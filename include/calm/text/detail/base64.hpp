#pragma once
// Strict Base64 with padding (RFC 4648, section 4): accepts only what encoding produces.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace calm {

namespace detail {
inline constexpr std::string_view base64_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}  // namespace detail

// Encodes any bytes.
[[nodiscard]] inline std::string base64_encode(std::string_view bytes) {
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t word = 0;
        for (std::size_t j = 0; j < 3; ++j)
            word = word << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0u);
        for (std::size_t j = 0; j < 4; ++j)
            out += i + j > bytes.size() ? '=' : detail::base64_letters[word >> (18 - 6 * j) & 63u];
    }
    return out;
}

// Decodes; nullopt if the text is not strict base64.
[[nodiscard]] inline std::optional<std::string> base64_decode(std::string_view text) {
    static constexpr auto values = [] {
        std::array<std::int8_t, 256> table{};
        table.fill(-1);
        for (std::size_t i = 0; i < 64; ++i)
            table[static_cast<std::uint8_t>(detail::base64_letters[i])] = static_cast<std::int8_t>(i);
        return table;
    }();
    if (text.size() % 4 != 0) return std::nullopt;
    std::size_t letters = text.size();
    while (letters > 0 && text.size() - letters < 2 && text[letters - 1] == '=') --letters;
    std::string out;
    out.reserve(text.size() / 4 * 3);
    std::uint32_t word = 0;
    int bits = 0;
    for (char const c : text.substr(0, letters)) {
        std::int8_t const value = values[static_cast<std::uint8_t>(c)];
        if (value < 0) return std::nullopt;
        word = word << 6 | static_cast<std::uint32_t>(value);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        out += static_cast<char>(word >> bits & 0xffu);
    }
    if ((word & ((1u << bits) - 1)) != 0) return std::nullopt;
    return out;
}

}  // namespace calm
