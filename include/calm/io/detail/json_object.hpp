#pragma once
// The JSON objects in and next to weight files, with a size limit for each kind.

#include <cstddef>
#include <string>
#include <string_view>

#include "calm/base/detail/simdjson.hpp"
#include "calm/base/error.hpp"

namespace calm {

// Maximum bytes of each kind. Parsed JSON takes up to 45 times its size in memory (SECURITY.md).
namespace json_limit {
inline constexpr std::size_t config = 1'000'000;               // config.json; published ones have 1 to 5 kB
inline constexpr std::size_t safetensors_header = 10'000'000;  // 100 bytes per tensor; CALM-XL has some hundred tensors
inline constexpr std::size_t index = 10'000'000;               // as above, for *.index.json
inline constexpr std::size_t state = 1'000'000;                // state.json: 2 kB plus the paths of the run's text
}  // namespace json_limit

namespace detail {

// Parses a text of at most `most` bytes, without a byte order mark, as a JSON object that lives as long as the parser.
// Throws errc::model_file with the path and the place.
inline simdjson::dom::object json_object(simdjson::dom::parser& parser, std::string_view text, std::size_t most,
                                         std::string const& path, std::string const& place = "") {
    if (text.size() > most)
        throw error(errc::model_file, path, place,
                    sentence("expected a JSON object of at most ", most, " bytes, found ", text.size()));
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    simdjson::dom::object object;
    if (auto const code = parse_json(parser, text).get(object))
        throw error(errc::model_file, path, place,
                    std::string("expected a JSON object, found none: ") + simdjson::error_message(code));
    return object;
}

// Ensures that a written text can be read again. Throws errc::usage if it has more than `most` bytes.
inline void require_readable(std::string_view text, std::size_t most, std::string_view file) {
    require(text.size() <= most, errc::usage, file, ": expected at most ", most, " bytes to write, found ", text.size(),
            ": they could not be read again; are names or lists too long?");
}

}  // namespace detail

}  // namespace calm
