#include "command/settings_file.hpp"

#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "calm/sample/temperature.hpp"
#include "calm/tensor/error.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

constexpr std::uintmax_t largest = 1'000'000;  // bytes

// Values of a node of either kind: none where it is no string, number or boolean, or an array of these.
std::string text_of(toml::node const& node) {
    if (auto const* text = node.as_string()) return text->get();
    if (auto const* whole = node.as_integer()) return std::to_string(whole->get());
    if (auto const* number = node.as_floating_point()) return detail::shortest(number->get());
    if (auto const* truth = node.as_boolean()) return truth->get() ? "true" : "false";
    throw error(errc::usage, "expected a string, a number, true or false");
}

std::string text_of(nlohmann::json const& node) {
    if (node.is_string()) return node.get<std::string>();
    if (node.is_number_unsigned()) return std::to_string(node.get<std::uint64_t>());
    if (node.is_number_integer()) return std::to_string(node.get<std::int64_t>());
    if (node.is_number_float()) return detail::shortest(node.get<double>());
    if (node.is_boolean()) return node.get<bool>() ? "true" : "false";
    throw error(errc::usage, "expected a string, a number, true or false");
}

template <class Array> std::vector<std::string> texts_of(Array const& array) {
    std::vector<std::string> texts;
    for (auto const& each : array) texts.push_back(text_of(each));
    return texts;
}

// Adds a key; what it cannot be set to is a problem.
template <class Values>
void add(settings_file& file, std::string table, std::string key, std::string place, Values const& values) {
    try {
        file.settings.push_back({std::move(table), key, values(), place});
    } catch (error const& wrong) {
        file.problems.push_back(place + ": " + key + ": " + wrong.what());
    }
}

void add(settings_file& file, std::string const& path, std::string const& table, toml::table const& from) {
    for (auto const& [name, node] : from) {
        std::string const key(name.str());
        std::string const place = path + ", line " + std::to_string(name.source().begin.line);
        if (auto const* inner = node.as_table(); inner != nullptr && table.empty())
            add(file, path, key, *inner);
        else
            add(file, table, key, place,
                [&node = node] { return node.is_array() ? texts_of(*node.as_array()) : std::vector{text_of(node)}; });
    }
}

void add(settings_file& file, std::string const& path, std::string const& table, nlohmann::json const& from) {
    for (auto const& [key, node] : from.items()) {
        if (node.is_object() && table.empty())
            add(file, path, key, node);
        else
            add(file, table, key, path,
                [&node = node] { return node.is_array() ? texts_of(node) : std::vector{text_of(node)}; });
    }
}

void read_into(settings_file& file, std::string const& path) {
    std::error_code failed;
    if (!std::filesystem::is_regular_file(path, failed))
        throw error(errc::usage, "expected a file of options, there is none");
    if (std::filesystem::file_size(path, failed) > largest || failed)
        throw error(errc::usage, "expected at most 1 MB of options, found more");
    std::ifstream stream(path, std::ios::binary);
    std::string const text{std::istreambuf_iterator<char>(stream), {}};
    if (!stream) throw error(errc::usage, "cannot be read: check its permissions");
    if (path.ends_with(".json")) {
        auto const all = strict_json(text);
        if (!all.is_object()) throw error(errc::usage, "expected one JSON object");
        add(file, path, "", all);
    } else {
        add(file, path, "", toml::parse(text, path));
    }
}

}  // namespace

settings_file read_settings_file(std::string const& path) {
    settings_file file;
    try {
        read_into(file, path);
    } catch (toml::parse_error const& wrong) {
        file.problems.push_back(path + ", line " + std::to_string(wrong.source().begin.line) +
                                ": no valid TOML: " + std::string(wrong.description()));
    } catch (error const& wrong) {
        file.problems.push_back(path + ": " + wrong.what());
    }
    return file;
}

std::vector<std::string> listed_values(std::string const& text) {
    if (!text.starts_with('[')) return {text};
    try {
        return texts_of(strict_json(text));
    } catch (error const& wrong) {
        throw error(errc::usage, "expected one value, or several as a list like [\"a\", \"b\"], found " + text + ": " +
                                     wrong.what());
    }
}

std::string toml_string(std::string const& text) {
    auto quoted = nlohmann::json(text).dump();  // its escapes are TOML's, which has one more
    for (auto at = quoted.find('\x7f'); at != std::string::npos; at = quoted.find('\x7f', at))
        quoted.replace(at, 1, "\\u007f");
    return quoted;
}

}  // namespace calm::apps
