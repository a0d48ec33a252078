#include "strict_json.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "calm/base/detail/utf8.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/text/detail/line_reader.hpp"

namespace calm::apps {

namespace {

// SAX pass that rejects deep nesting and duplicate keys, which the parser accepts. A parser callback would take
// quadratic time, since the parser then scans all siblings of each value.
class judge : public nlohmann::json_sax<nlohmann::json> {
public:
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, string_t const&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(std::size_t) override { return open(); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        if (!keys_.back().insert(name).second)
            throw error(errc::data, "the key " + json_line(nlohmann::json(name)) + " appears twice");
        return true;
    }
    // json::parse() reports the error.
    bool parse_error(std::size_t, std::string const&, nlohmann::json::exception const&) override { return false; }

private:
    static constexpr std::size_t deepest = 64;

    bool open() {
        if (keys_.size() == deepest)
            throw error(errc::data, sentence("expected values at most ", deepest, " deep, found more"));
        keys_.emplace_back();
        return true;
    }
    bool close() {
        keys_.pop_back();
        return true;
    }

    std::vector<std::set<std::string>> keys_;  // of the open values
};

// The parser's message without its prefix: "[json.exception.parse_error.101] parse error at line 1, column 2: ...".
std::string_view reason_of(std::string_view said) {
    for (std::string_view const before : {"] ", "parse error at line 1, "})
        if (auto const at = said.find(before); at != std::string_view::npos && at < 40)
            said.remove_prefix(at + before.size());
    return said;
}

}  // namespace

nlohmann::json strict_json(std::string_view text) {
    if (text.size() > longest_json)
        throw error(errc::data, sentence("expected JSON of at most ", longest_json, " bytes, found more"));
    try {
        judge all;
        static_cast<void>(nlohmann::json::sax_parse(text.begin(), text.end(), &all));
        return nlohmann::json::parse(text.begin(), text.end());
    } catch (nlohmann::json::out_of_range const& wrong) {
        throw error(errc::data, sentence("expected numbers of at most 1.8e308: ", reason_of(wrong.what())));
    } catch (nlohmann::json::exception const& wrong) {
        throw error(errc::data, sentence("invalid JSON: ", reason_of(wrong.what())));
    }
}

namespace {

constexpr char const* space = " \t\r\n";

// The index after the string that begins at `at`.
std::size_t end_of_quoted(std::string_view text, std::size_t at) {
    for (++at; text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    return at + 1;
}

// The index after the value that begins at `at`.
std::size_t end_of_value(std::string_view text, std::size_t at) {
    if (text[at] == '"') return end_of_quoted(text, at);
    if (text[at] != '{' && text[at] != '[') return text.find_first_of(" \t\r\n,}", at);
    for (std::size_t depth = 0;;) {
        char const c = text[at];
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
        at = c == '"' ? end_of_quoted(text, at) : at + 1;
        if (depth == 0) return at;
    }
}

}  // namespace

std::string raw_value(std::string_view object, std::string_view key) {
    auto const skip = [&](std::size_t at) { return object.find_first_not_of(space, at); };
    auto at = skip(object.find('{') + 1);
    while (object[at] == '"') {
        auto const end_of_key = end_of_quoted(object, at);
        auto const name = nlohmann::json::parse(object.substr(at, end_of_key - at)).get<std::string>();
        auto const value = skip(skip(end_of_key) + 1);  // after the colon
        auto const end = end_of_value(object, value);
        if (name == key) return std::string(object.substr(value, end - value));
        at = skip(end);
        if (object[at] == ',') at = skip(at + 1);
    }
    return "";
}

std::string without_controls(std::string_view line) {
    std::string out;
    out.reserve(line.size());
    while (!line.empty()) {
        auto const character = line.substr(0, first_character(line).size);
        if (auto const value = code_point(character); is_control(value))
            append_hex(out += "\\u", value, 4);
        else
            out += character;
        line.remove_prefix(character.size());
    }
    return out;
}

std::string json_line(nlohmann::json const& value) {
    return without_controls(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string json_line(nlohmann::ordered_json const& value) {
    return without_controls(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void each_json_line(std::string const& path,
                    std::function<void(std::string_view line, nlohmann::json const& object)> const& f) {
    line_reader lines(path, longest_json);
    for (std::string line;;) {
        nlohmann::json value;
        try {
            if (!lines.next(line)) return;
            value = strict_json(line);
        } catch (error const& wrong) {
            if (wrong.code() != errc::data) throw;
            continue;
        }
        if (value.is_object()) f(line, value);
    }
}

}  // namespace calm::apps
