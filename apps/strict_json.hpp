#pragma once
// JSON of users: what other readers pass over in silence is refused.

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace calm::apps {

// The most bytes of a JSON that the programs parse: a file of options, run.json, a line of metrics.jsonl, samples.jsonl
// or --jsonl. None needs a tenth of it; to be held it takes up to 45 times as many. calm::json_limit has the library's.
inline constexpr std::size_t longest_json = 1'000'000;

// The value of a text. Throws errc::data for a text that is longer, no JSON, or more than 64 values deep, or has an
// object with a key twice.
nlohmann::json strict_json(std::string_view text);

// The bytes of the value that a key has in the text of an object, as they stand there: digits that no number here
// holds, escapes. The text is one that strict_json took. Empty where the key is missing.
std::string raw_value(std::string_view object, std::string_view key);

// One line of JSON, UTF-8, in which every control (calm::is_control) is escaped.
std::string without_controls(std::string_view line);

// The value on one line; bytes that are no UTF-8 become U+FFFD. What a terminal might obey (calm::is_control) is
// escaped even where JSON lets it stand, DEL, C1 and marks of direction, so that a terminal shows the same JSON.
std::string json_line(nlohmann::json const& value);
std::string json_line(nlohmann::ordered_json const& value);

// Calls f(line, value) for each line of a file that is a JSON object; a line is held, never the file. Others, and those
// longer than longest_json, are none of ours or were interrupted: they are passed over. Throws errc::storage where the
// file cannot be read.
void each_json_line(std::string const& path,
                    std::function<void(std::string_view line, nlohmann::json const& object)> const& f);

}  // namespace calm::apps
