#pragma once
// JSON of users: what other readers pass over in silence is refused.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace calm::apps {

// The value of a text. Throws errc::data for a text that is no JSON, or has an object with a key twice.
nlohmann::json strict_json(std::string const& text);

// The value on one line; bytes that are no UTF-8 become U+FFFD.
std::string json_line(nlohmann::json const& value);
std::string json_line(nlohmann::ordered_json const& value);

}  // namespace calm::apps
