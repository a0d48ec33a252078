#pragma once
// Checked access to the values of an untrusted JSON file.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/simdjson.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/text/detail/json_size.hpp"

namespace calm::detail {

// Converts values of one file to their expected types. Throws errc::tokenizer with the path of the file and the path of
// the value in it, e.g. model.merges[3].
class json_values {
public:
    using element = simdjson::dom::element;
    using object = simdjson::dom::object;
    using array = simdjson::dom::array;

    explicit json_values(std::string path) : path_(std::move(path)) {}

    [[nodiscard]] std::string const& path() const { return path_; }

    // Throws an error of this file.
    [[noreturn]] void fail(std::string const& place, std::string const& sentence) const {
        throw error(errc::tokenizer, path_, place, sentence);
    }
    [[noreturn]] void fail_kind(std::string const& place, std::string_view expected, element found) const {
        fail(place, "expected " + std::string(expected) + ", found " + shown(found));
    }

    // Parses the file, which must be one object with at most `most` values and punctuation characters. The object is
    // valid as long as this reader.
    object parse(std::string_view json, std::size_t most) {
        if (!json_has_at_most(json, most))
            fail("", "expected at most " + std::to_string(most) +
                         " values and signs, found more: the file is of another kind");
        element root;
        if (auto const code = parser_.parse(simdjson::padded_string(json)).get(root); code != simdjson::SUCCESS)
            fail("", std::string("invalid JSON (") + simdjson::error_message(code) +
                         "): expected one object; the file is damaged, copy it again");
        return as_object(root, "the file");
    }

    // A value as shown in an error message.
    static std::string shown(element e) {
        if (e.is_string()) return in_quotes(e.get_string().value_unsafe(), '"');
        if (e.is_array()) return "a list";
        if (e.is_object()) return "an object";
        return simdjson::minify(e);
    }
    // Paths: of the value of a key, and of an element of a list.
    static std::string joined(std::string const& place, std::string_view key) {
        return place.empty() ? std::string(key) : place + "." + std::string(key);
    }
    static std::string at(std::string const& place, std::size_t i) { return place + "[" + std::to_string(i) + "]"; }

    // Convert a value to the named type.
    object as_object(element e, std::string const& place) const {
        object o;
        if (e.get(o) != simdjson::SUCCESS) fail_kind(place, "an object", e);
        return o;
    }
    array as_array(element e, std::string const& place) const {
        array a;
        if (e.get(a) != simdjson::SUCCESS) fail_kind(place, "a list", e);
        return a;
    }
    std::string_view as_string(element e, std::string const& place) const {
        std::string_view s;
        if (e.get(s) != simdjson::SUCCESS) fail_kind(place, "a string", e);
        return s;
    }

    // Refuses unknown keys, and duplicate keys, which are ambiguous.
    void only(object o, std::string const& place, std::initializer_list<std::string_view> known) const {
        std::vector<std::string_view> met;
        for (auto const field : o) {
            if (std::find(known.begin(), known.end(), field.key) == known.end())
                fail(joined(place, in_quotes(field.key, '"')),
                     "this key is not supported: expected a byte-level BPE without it");
            if (std::find(met.begin(), met.end(), field.key) != met.end())
                fail(joined(place, field.key), "expected the key once, found it twice: remove one");
            met.push_back(field.key);
        }
    }
    // The value of a key: find() returns it if it exists, present() requires it, absent() requires it to be missing or
    // null.
    static std::optional<element> find(object o, std::string_view key) {
        element e;
        if (o.at_key(key).get(e) != simdjson::SUCCESS) return std::nullopt;
        return e;
    }
    element present(object o, std::string const& place, std::string_view key) const {
        auto const e = find(o, key);
        if (!e) fail(joined(place, key), "expected this key, found none: the file is cut short or of another kind");
        return *e;
    }
    void absent(object o, std::string const& place, std::string_view key) const {
        if (auto const e = find(o, key); e && !e->is_null())
            fail_kind(joined(place, key), "none or null (nothing else is supported)", *e);
    }
    // flag() is the value of a boolean key, `without` if the key is missing. flag_is() throws unless that is as
    // expected.
    bool flag(object o, std::string const& place, std::string_view key, bool without) const {
        auto const e = find(o, key);
        if (!e) return without;
        bool b = false;
        if (e->get(b) != simdjson::SUCCESS) fail_kind(joined(place, key), "true or false", *e);
        return b;
    }
    void flag_is(object o, std::string const& place, std::string_view key, bool without, bool expected) const {
        if (flag(o, place, key, without) != expected)
            fail(joined(place, key), expected ? "expected true, found false" : "expected false, found true");
    }
    // The value of the key "type". expect() throws unless a string is as expected.
    std::string_view type_of(object o, std::string const& place) const {
        return as_string(present(o, place, "type"), joined(place, "type"));
    }
    void expect(std::string_view found, std::string const& place, std::string_view expected) const {
        if (found != expected)
            fail(place, "expected \"" + std::string(expected) + "\", found " + in_quotes(found, '"'));
    }

private:
    std::string path_;
    simdjson::dom::parser parser_;
};

}  // namespace calm::detail
