#include "strict_json.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "calm/tensor/error.hpp"

namespace calm::apps {

nlohmann::json strict_json(std::string const& text) {
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    auto const no_key_twice = [&](int, nlohmann::json::parse_event_t event, nlohmann::json const& value) {
        using event_of = nlohmann::json::parse_event_t;
        if (event == event_of::object_start) keys.emplace_back();
        if (event == event_of::object_end) keys.pop_back();
        if (event == event_of::key && !keys.back().insert(value.get<std::string>()).second)
            throw error(errc::data, "the key " + json_line(value) + " stands twice");
        return true;
    };
    try {
        return nlohmann::json::parse(text, no_key_twice);
    } catch (nlohmann::json::exception const& wrong) {
        throw error(errc::data, std::string("no valid JSON: ") + wrong.what());
    }
}

namespace {

constexpr char const* space = " \t\r\n";

// Behind the string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
    for (++at; text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    return at + 1;
}

// Behind the value that begins at `at`.
std::size_t end_of_value(std::string_view text, std::size_t at) {
    if (text[at] == '"') return end_of_string(text, at);
    if (text[at] != '{' && text[at] != '[') return text.find_first_of(" \t\r\n,}", at);
    for (std::size_t depth = 0;;) {
        char const c = text[at];
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
        at = c == '"' ? end_of_string(text, at) : at + 1;
        if (depth == 0) return at;
    }
}

}  // namespace

std::string raw_value(std::string_view object, std::string_view key) {
    auto const skip = [&](std::size_t at) { return object.find_first_not_of(space, at); };
    auto at = skip(object.find('{') + 1);
    while (object[at] == '"') {
        auto const end_of_key = end_of_string(object, at);
        auto const name = nlohmann::json::parse(object.substr(at, end_of_key - at)).get<std::string>();
        auto const value = skip(skip(end_of_key) + 1);  // behind the colon
        auto const end = end_of_value(object, value);
        if (name == key) return std::string(object.substr(value, end - value));
        at = skip(end);
        if (object[at] == ',') at = skip(at + 1);
    }
    return "";
}

std::string json_line(nlohmann::json const& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_line(nlohmann::ordered_json const& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace calm::apps
