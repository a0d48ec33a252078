#include "serve/page.hpp"

#include <cstddef>
#include <cstdint>

#include "calm/base/detail/sha256.hpp"
#include "serve_documents.inc"

namespace calm::apps {

namespace {

std::string base64_of(std::string_view bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t three = 0;
        for (std::size_t j = i; j < i + 3; ++j)
            three = three << 8 | (j < bytes.size() ? static_cast<std::uint8_t>(bytes[j]) : 0U);
        for (std::size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : digits[three >> (18 - 6 * j) & 63U];
    }
    return text;
}

// 'sha256-...' of the text between two tags of a page.
std::string hash_source(std::string_view page, std::string_view open, std::string_view close) {
    auto const begin = page.find(open) + open.size();
    sha256 hash;
    hash.add(page.substr(begin, page.find(close, begin) - begin));
    auto const hex = hash.hex();
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return "'sha256-" + base64_of(bytes) + "'";
}

}  // namespace

std::string_view page_of_server() {
    return page_text;
}

std::string_view openapi_of_server() {
    return openapi_text;
}

std::string policy_of_page(std::string_view page) {
    return "default-src 'none'; script-src " + hash_source(page, "<script>", "</script>") + "; style-src " +
           hash_source(page, "<style>", "</style>") +
           "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

}  // namespace calm::apps
