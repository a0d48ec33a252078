#include "strict_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "calm/io/file.hpp"
#include "calm/tensor/error.hpp"

namespace calm::apps {

namespace {

constexpr int deepest = 64;

}  // namespace

nlohmann::json strict_json(std::string const& text) {
    if (text.size() > longest_json)
        throw error(errc::data, sentence("expected JSON of at most ", longest_json, " bytes, found more"));
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    auto const no_key_twice = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json const& value) {
        if (depth > deepest)
            throw error(errc::data, sentence("expected values at most ", deepest, " deep, found more"));
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

std::string json_line(nlohmann::json const& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_line(nlohmann::ordered_json const& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void each_json_line(std::string const& path,
                    std::function<void(std::string_view line, nlohmann::json const& object)> const& f) {
    auto const file = mapped_file::open(path);
    for (auto left = file.text(); !left.empty();) {
        auto const line = left.substr(0, left.find('\n'));
        left.remove_prefix(std::min(left.size(), line.size() + 1));
        if (line.size() > longest_json) continue;
        nlohmann::json value;
        try {
            value = strict_json(std::string(line));
        } catch (error const&) {
            continue;
        }
        if (value.is_object()) f(line, value);
    }
}

}  // namespace calm::apps
