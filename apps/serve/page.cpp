#include "serve/page.hpp"

#include <cstddef>

#include "calm/base/detail/sha256.hpp"
#include "calm/text/detail/base64.hpp"
#include "serve_documents.inc"

namespace calm::apps {

namespace {

// 'sha256-...' of the text between two tags of a page.
std::string hash_source(std::string_view page, std::string_view open, std::string_view close) {
    auto const begin = page.find(open) + open.size();
    sha256 hash;
    hash.add(page.substr(begin, page.find(close, begin) - begin));
    auto const hex = hash.hex();
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return "'sha256-" + base64_encode(bytes) + "'";
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
