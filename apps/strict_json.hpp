#pragma once
// JSON of users: what other readers pass over in silence is refused.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace calm::apps {

// The value of a text. Throws errc::data for a text that is no JSON, or has an object with a key twice.
nlohmann::json strict_json(std::string const& text);

// The bytes of the value that a key has in the text of an object, as they stand there: digits that no number here
// holds, escapes. The text is one that strict_json took. Empty where the key is missing.
std::string raw_value(std::string_view object, std::string_view key);

// The value on one line; bytes that are no UTF-8 become U+FFFD.
std::string json_line(nlohmann::json const& value);
std::string json_line(nlohmann::ordered_json const& value);

}  // namespace calm::apps
