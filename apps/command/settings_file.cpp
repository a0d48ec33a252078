#include "command/settings_file.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/utf8.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/sample/temperature.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

// An invalid file can violate what toml++ 3.3 asserts, and assumes in optimised code.
constexpr void require_of_toml(bool holds) {
    if (!holds) throw error(errc::usage, "invalid TOML");
}

}  // namespace

}  // namespace calm::apps

#undef NDEBUG
#define TOML_ASSERT(condition) calm::apps::require_of_toml(static_cast<bool>(condition))
#include <toml++/toml.h>

namespace calm::apps {

namespace {

bool is_ascii(char c) {
    return static_cast<unsigned char>(c) < 0x80;
}

// toml++ 3.3 treats most non-ASCII characters as unreachable where it looks for white space, and an invalid file can
// make it look there inside an apparent string. So each non-ASCII byte b is passed to it as the private-use character
// U+F0000 + b, which it accepts as text anywhere.
constexpr std::string_view private_lead = "\xf3\xb0";

std::string in_private_characters(std::string_view text) {
    if (auto const valid = valid_prefix(text); valid < text.size())
        throw error(errc::usage,
                    sentence("invalid TOML: expected UTF-8, found byte ", printable(text.substr(valid, 1)), " in line ",
                             1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(valid), '\n')));
    for (auto const* const escape : {"\\U000F00", "\\U000f00"})
        if (text.find(escape) != std::string_view::npos)
            throw error(errc::usage, sentence("expected TOML without private characters, found ", escape, "..."));
    std::string all;
    if (text.starts_with("\xef\xbb\xbf")) {  // UTF-8 byte order mark: not text
        all = text.substr(0, 3);
        text.remove_prefix(3);
    }
    for (char const c : text) {
        auto const byte = static_cast<std::uint8_t>(c);
        if (!is_ascii(c)) (all += private_lead) += static_cast<char>(0x80 | byte >> 6);
        all += is_ascii(c) ? c : static_cast<char>(0x80 | (byte & 0x3f));
    }
    return all;
}

// The inverse of in_private_characters.
std::string from_private_characters(std::string_view text) {
    std::string all;
    while (!text.empty()) {
        auto const third = text.size() < 4 ? 0 : static_cast<std::uint8_t>(text[2]);
        bool const is_private = text.starts_with(private_lead) && (third == 0x82 || third == 0x83);
        all += is_private ? static_cast<char>(third << 6 | (text[3] & 0x3f)) : text[0];
        text.remove_prefix(is_private ? 4 : 1);
    }
    return all;
}

// The text of a scalar node. Throws errc::usage for anything else.
std::string text_of(toml::node const& node) {
    if (auto const* text = node.as_string()) return from_private_characters(text->get());
    if (auto const* whole = node.as_integer()) return std::to_string(whole->get());
    if (auto const* number = node.as_floating_point()) return shortest(number->get());
    if (auto const* truth = node.as_boolean()) return truth->get() ? "true" : "false";
    throw error(errc::usage, "expected a string, a number, true or false");
}

std::string text_of(nlohmann::json const& node) {
    if (node.is_string()) return node.get<std::string>();
    if (node.is_number_unsigned()) return std::to_string(node.get<std::uint64_t>());
    if (node.is_number_integer()) return std::to_string(node.get<std::int64_t>());
    if (node.is_number_float()) return shortest(node.get<double>());
    if (node.is_boolean()) return node.get<bool>() ? "true" : "false";
    throw error(errc::usage, "expected a string, a number, true or false");
}

template <class Array> std::vector<std::string> texts_of(Array const& array) {
    std::vector<std::string> texts;
    for (auto const& each : array) texts.push_back(text_of(each));
    return texts;
}

// Adds a key; an invalid value becomes a problem.
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
        std::string const key = from_private_characters(name.str());
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

// The index after the TOML string that begins at `at`, or where an unterminated one breaks off.
std::size_t end_of_string(std::string_view text, std::size_t at) {
    char const quote = text[at];
    bool const escapes = quote == '"';
    std::string const triple(3, quote);
    bool const many_lines = text.substr(at, 3) == triple;
    for (at += many_lines ? 3 : 1; at < text.size(); ++at) {
        if (escapes && text[at] == '\\') {
            ++at;
        } else if (!many_lines && (text[at] == quote || text[at] == '\n')) {
            return at + 1;
        } else if (many_lines && text.substr(at, 3) == triple) {
            at += 3;
            for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;  // part of the string
            return at;
        }
    }
    return text.size();
}

// Throws unless the recursive TOML parser can handle the text: dots and brackets must not nest too deep, and non-ASCII
// characters must be in strings. Valid files nest two levels and have ASCII keys.
void require_plain(std::string_view text) {
    constexpr int most_dots = 64;  // per line, outside of strings
    constexpr int most_open = 16;
    int dots = 0, open = 0;
    for (std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0; at < text.size();) {
        char const c = text[at];
        if (c == '"' || c == '\'') {
            at = end_of_string(text, at);
            continue;
        }
        if (c == '#') {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (!is_ascii(c))
            throw error(errc::usage,
                        "expected TOML with letters beyond ASCII in quotes alone, found one outside of them");
        dots = c == '\n' ? 0 : dots + (c == '.' ? 1 : 0);
        open += c == '[' || c == '{' ? 1 : (c == ']' || c == '}') && open > 0 ? -1 : 0;
        if (dots > most_dots || open > most_open)
            throw error(errc::usage,
                        sentence("expected TOML with at most ", most_dots, " dots outside of strings in a line and ",
                                 most_open,
                                 " brackets one in another, found more: options are keys, or tables of keys"));
        ++at;
    }
}

void parse_into(settings_file& file, std::string const& text, std::string const& path) {
    if (text.size() > longest_json) throw error(errc::usage, "expected at most 1 MB of options, found more");
    if (path.ends_with(".json")) {
        auto const all = strict_json(text);
        if (!all.is_object()) throw error(errc::usage, "expected one JSON object");
        add(file, path, "", all);
    } else {
        require_plain(text);
        add(file, path, "", toml::parse(in_private_characters(text), path));
    }
}

std::string content_of(std::string const& path) {
    return std::string(mapped_file::open(path, errc::usage).text().substr(0, longest_json + 1));
}

// Runs `read`; its exceptions become problems of the file.
template <class Read> settings_file settings_of(std::string const& path, Read const& read) {
    settings_file file;
    try {
        read(file);
    } catch (toml::parse_error const& wrong) {
        file.problems.push_back(path + ", line " + std::to_string(wrong.source().begin.line) +
                                ": invalid TOML: " + from_private_characters(wrong.description()));
    } catch (error const& wrong) {
        file.problems.push_back(path + ": " + wrong.reason());
    }
    return file;
}

}  // namespace

settings_file parse_settings(std::string const& text, std::string const& path) {
    return settings_of(path, [&](settings_file& file) { parse_into(file, text, path); });
}

settings_file read_settings_file(std::string const& path) {
    return settings_of(path, [&](settings_file& file) { parse_into(file, content_of(path), path); });
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
    return without_controls(nlohmann::json(text).dump());  // JSON's escapes are a subset of TOML's
}

}  // namespace calm::apps
