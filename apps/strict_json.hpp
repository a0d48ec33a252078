#pragma once
// Strict JSON parsing of user input: rejects what lenient parsers silently accept.

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace calm::apps {

// Size limit in bytes of JSON that the programs parse: a file of options, run.json, or one line of metrics.jsonl,
// samples.jsonl or --jsonl. None needs a tenth of it; the parsed value takes up to 45 times the memory.
// calm::json_limit is the library's limit.
inline constexpr std::size_t longest_json = 1'000'000;

// Parses a text. Throws errc::data if it is too long, is not JSON, nests deeper than 64 values, or has a duplicate key.
nlohmann::json strict_json(std::string_view text);

// The raw bytes of a key's value in an object, so that escapes and long numbers survive. strict_json must have accepted
// `object`. Empty if the key is missing.
std::string raw_value(std::string_view object, std::string_view key);

// The line of JSON (UTF-8) with every control character (calm::is_control) escaped.
std::string without_controls(std::string_view line);

// The value on one line; invalid UTF-8 becomes U+FFFD. Escapes all characters that a terminal may interpret
// (calm::is_control), also DEL, C1 and direction marks, which JSON allows; the value stays the same.
std::string json_line(nlohmann::json const& value);
std::string json_line(nlohmann::ordered_json const& value);

// Calls f(line, value) for each line of a file that is a JSON object, and holds one line at a time. Skips other lines
// and those longer than longest_json: they are foreign or were cut off. Throws errc::storage if the file cannot be
// read.
void each_json_line(std::string const& path,
                    std::function<void(std::string_view line, nlohmann::json const& object)> const& f);

}  // namespace calm::apps
