#pragma once
// Loads tokenizers from files of either format.

#include <cstddef>
#include <string>
#include <string_view>

#include "calm/base/file.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/text/tokenizer_json.hpp"

namespace calm {

// Parses a tokenizer: a JSON object as Hugging Face's tokenizer.json, anything else as `base64 rank` lines. The output
// of markov().lines() gives markov(). Throws errc::tokenizer with path and the line or key in question.
[[nodiscard]] inline tokenizer parse_tokenizer(std::string_view bytes, std::string const& path) {
    std::size_t const first = bytes.substr(0, limits::tokenizer_file).find_first_not_of(" \t\r\n\xef\xbb\xbf");
    if (first != std::string_view::npos && bytes[first] == '{') return tokenizer(parse_tokenizer_json(bytes, path));
    return tokenizer::parse_lines(bytes, path);
}

// Reads a file of either format, whatever its name. Throws as parse_tokenizer, and errc::storage if it cannot be read.
[[nodiscard]] inline tokenizer load_tokenizer(std::string const& path) {
    auto const file = mapped_file::open(path);
    return parse_tokenizer(file.text(), path);
}

}  // namespace calm
