#pragma once
// Loads tokenizers from files of either format.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "calm/base/detail/file.hpp"
#include "calm/text/detail/json_faults.hpp"
#include "calm/text/detail/json_values.hpp"
#include "calm/text/detail/tokenizer_json.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm {

// Parses a tokenizer: a JSON object as Hugging Face's tokenizer.json, anything else as `base64 rank` lines, of Llama 3
// or of a vocabulary trained here. The output of markov().lines() gives markov(). Throws errc::tokenizer with path and
// the line or key in question.
[[nodiscard]] inline tokenizer parse_tokenizer(std::string_view bytes, std::string const& path) {
    std::size_t const first = bytes.substr(0, limits::tokenizer_file).find_first_not_of(" \t\r\n\xef\xbb\xbf");
    if (first != std::string_view::npos && bytes[first] == '{') return tokenizer(parse_tokenizer_json(bytes, path));
    auto tokenizer = tokenizer::parse_lines(bytes, path);
    if (!tokenizer.is_pattern_known())
        throw error(errc::tokenizer, path, "",
                    "expected tiktoken's file of Llama 3 or of `train tokenizer`, found another vocabulary, whose "
                    "pattern of pieces the format does not tell: use the model's tokenizer.json");
    return tokenizer;
}

// Reads a file of either format, whatever its name. Throws as parse_tokenizer, and errc::storage if it cannot be read.
[[nodiscard]] inline tokenizer load_tokenizer(std::string const& path) {
    auto const file = mapped_file::open(path);
    return parse_tokenizer(file.text(), path);
}

namespace detail {

class tokenizer_config_reader : json_values {
public:
    explicit tokenizer_config_reader(std::string const& path) : json_values(path) {}

    [[nodiscard]] std::optional<bool> add_bos_token(std::string_view json) {
        require_tokenizer_size(path(), json.size());
        std::string text(json);
        forget_json_numbers(text);  // model_max_length is often 10^30, which the parser refuses
        object const file = parse(text, most_values);
        auto const found = find(file, "add_bos_token");
        if (!found || found->is_null()) return std::nullopt;
        return flag(file, "", "add_bos_token", false);
    }

private:
    static constexpr std::size_t most_values = std::size_t{1} << 20;
};

}  // namespace detail

// Whether prompts begin with BOS according to a tokenizer_config.json; nullopt if it does not say. Throws
// errc::tokenizer for a damaged file, errc::storage if it cannot be read.
[[nodiscard]] inline std::optional<bool> read_add_bos_token(std::string const& path) {
    auto const file = mapped_file::open(path);
    return detail::tokenizer_config_reader(path).add_bos_token(file.text());
}

}  // namespace calm
