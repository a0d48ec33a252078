#pragma once
/// \file
/// Loads tokenizers from files of either format.
/// \shows{tests/text/tokenizer_families_test.cpp,prompts_of_each_family_begin_as_its_post_processor_does}

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

namespace detail {
// Whether a tokenizer file is a JSON object.
inline bool is_json_object(std::string_view bytes) {
    std::size_t const first = bytes.substr(0, limits::tokenizer_file).find_first_not_of(" \t\r\n\xef\xbb\xbf");
    return first != std::string_view::npos && bytes[first] == '{';
}
}  // namespace detail

/// Parses a tokenizer: a JSON object as Hugging Face's tokenizer.json, anything else as `base64 rank` lines. Lines of a
/// published vocabulary need its pattern (tokenizer::parse_lines), except Llama 3's. Throws errc::tokenizer with path
/// and the line or key in question, and errc::usage for an unknown pattern or one with a tokenizer.json, which states
/// its own.
[[nodiscard]] inline tokenizer parse_tokenizer(std::string_view bytes, std::string const& path,
                                               std::string_view pattern = {}) {
    if (detail::is_json_object(bytes)) {
        require(pattern.empty(), errc::usage, path, ": expected tiktoken's lines for the pattern ", pattern,
                ", found a tokenizer.json, which states its own; leave the pattern out");
        return tokenizer(detail::parse_tokenizer_json(bytes, path));
    }
    auto tokenizer = tokenizer::parse_lines(bytes, path, pattern);
    if (!tokenizer.is_pattern_known())
        throw error(errc::tokenizer, path, "",
                    "expected tiktoken's file of Llama 3 or of `train tokenizer`, found another vocabulary, whose "
                    "pattern of pieces the format does not tell: give --pattern " +
                        names_of_rank_families() + ", or use the model's tokenizer.json");
    return tokenizer;
}

/// Reads a file of either format, whatever its name. Throws as parse_tokenizer, and errc::storage if it cannot be read.
[[nodiscard]] inline tokenizer load_tokenizer(std::string const& path, std::string_view pattern = {}) {
    auto const file = mapped_file::open(path);
    return parse_tokenizer(file.text(), path, pattern);
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

/// Whether prompts begin with BOS according to a tokenizer_config.json; nullopt if it does not say. Throws
/// errc::tokenizer for a damaged file, errc::storage if it cannot be read.
[[nodiscard]] inline std::optional<bool> read_add_bos_token(std::string const& path) {
    auto const file = mapped_file::open(path);
    return detail::tokenizer_config_reader(path).add_bos_token(file.text());
}

}  // namespace calm
