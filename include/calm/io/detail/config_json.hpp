#pragma once
// config.json of the published layouts and of ours: read into a description, and written back with all its keys.

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/simdjson.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/harmless_keys.hpp"
#include "calm/io/detail/json_object.hpp"
#include "calm/io/detail/number_range.hpp"
#include "calm/io/detail/problem_list.hpp"
#include "calm/io/model_description.hpp"

namespace calm {

namespace detail {

// Reads the keys of one JSON object as a description visits them; keep_rest() keeps the others or refuses them. An
// invalid value is added to `problems` with its key, "calm/data/mode" if nested, and the member is not changed.
class config_reader {
public:
    config_reader(simdjson::dom::object object, std::string prefix, json_extras& extras, problem_list& problems) :
        prefix_(std::move(prefix)), extras_(extras), problems_(problems) {
        for (auto const [key, value] : object)
            if (!keys_.emplace(key, value).second) fail(key, "expected the key once, found it twice");
    }

    template <class T> void operator()(std::string_view key, T& value, bool required = false) {
        auto const wanted = expected(value, key);
        if (auto const found = take(key, required, wanted))
            if (!read(*found, value, key)) fail(key, "expected " + wanted + ", found " + text(*found));
    }

    void operator()(number_field const& field, index_t& size) {
        field_value one{field, static_cast<double>(size)};
        number(one);
        size = static_cast<index_t>(one.value);
    }

    void number(field_value& one) {
        auto const& field = one.field;
        auto const wanted = expected(one);
        auto const found = take(field.key, field.required, wanted);
        if (!found) return;
        std::int64_t whole = 0;
        double real = 0;
        bool const read = one.whole ? !found->get(whole) : !found->get(real);
        field_value const given{field, one.whole ? static_cast<double>(whole) : real, one.whole};
        if (!read || !given.is_allowed()) return fail(field.key, "expected " + wanted + ", found " + text(*found));
        one = given;
    }

    template <class T, class Make> void object(std::string_view key, std::optional<T>& value, Make const& make) {
        auto const found = take(key, false, "an object");
        if (!found) return;
        value = make();
        if (!read_object(*found, *value, key)) fail(key, "expected an object, found " + text(*found));
    }

    // A key for which this library computes one value only; any other value would be computed wrongly.
    template <class T> void only(std::string_view key, T value, bool required = false) {
        auto const found = take(key, required, nlohmann::ordered_json(value).dump());
        if (found) require_equal(key, *found, value);
    }
    // A key that most files omit; null counts as omitted. Its value is kept with the unknown keys. A value `derived`
    // from other keys is checked only if those are valid.
    template <class T> void only_if_there(std::string_view key, T value, bool derived = false) {
        auto const found = keep(key);
        if (found && !(derived && !problems_.empty())) require_equal(key, *found, value);
    }

    // A key that some files have under another name, or under both with one value. null counts as omitted.
    template <class T> void either(std::string_view key, std::string_view other, T& value) {
        for (auto const& name : {key, other})
            if (auto const found = keys_.find(name); found != keys_.end() && found->second.is_null())
                keys_.erase(found);
        auto const second = keys_.find(other);
        if (second == keys_.end()) return (*this)(key, value);
        extras_.stated_by.emplace(key, other);
        if (auto const first = keys_.find(key); first != keys_.end()) {
            if (text(first->second) != text(second->second))
                fail(other, "expected " + text(first->second) + ", the value of " + in_quotes(key) + ", found " +
                                text(second->second) + "; remove one of the two");
            keys_.erase(first);
        }
        (*this)(other, value);
    }

    // Base and scaling of the rotary angles, under their own keys or in the object that transformers 5 writes. Whatever
    // is stated twice must agree.
    void rotary_angles(double& base, rotary_scaling& scaling) {
        std::string_view base_from = keys_.contains("rope_theta") ? "rope_theta" : "";
        (*this)("rope_theta", base);
        if (!keys_.contains("rope_scaling")) extras_.omitted.emplace("rope_scaling");
        bool is_scaling_stated = false;
        for (std::string_view const key : {"rope_scaling", "rope_parameters"}) {
            auto const found = keep(key);
            if (!found) continue;
            auto const stated = read_angles(key, *found);
            if (!stated) continue;
            if (stated->base && base_from.empty()) {
                base = *stated->base;
                base_from = key;
                extras_.stated_by.emplace("rope_theta", key);
            } else if (stated->base && *stated->base != base) {
                fail(std::string(key) + "/rope_theta", "expected " + text(base) + ", the value of " +
                                                           in_quotes(base_from) + ", found " + text(*stated->base));
            }
            if (is_scaling_stated && stated->scaling != scaling)
                fail(key, "expected the scaling of 'rope_scaling', found " + text(*found) + "; remove one of the two");
            scaling = stated->scaling;
            is_scaling_stated = true;
            if (key == "rope_parameters" && extras_.omitted.contains("rope_scaling"))
                extras_.stated_by.emplace("rope_scaling", key);
        }
    }

    // The elements per head. The value is kept with the unknown keys; `usual` is read as 0.
    void head_dim(index_t& size, index_t usual) {
        auto const found = keep("head_dim");
        if (!found) return;
        std::int64_t stated = 0;
        if (!read(*found, stated, "head_dim"))
            return fail("head_dim", "expected " + expected(stated, "head_dim") + ", found " + text(*found));
        size = stated == usual ? 0 : stated;
    }

    // Keeps the keys that were not visited. If `describes_numbers`, keys that are not known to be harmless are refused,
    // unless they are null.
    void keep_rest(bool describes_numbers) {
        for (auto const& [key, value] : keys_) {
            if (describes_numbers && !is_harmless(key) && !value.is_null()) refuse(key, value);
            extras_.others.emplace(key, simdjson::minify(value));
        }
    }

private:
    // The content of an object that states rotary angles.
    struct stated_angles {
        std::optional<double> base;
        rotary_scaling scaling;
    };
    // nullopt if it is no object or has no known type.
    std::optional<stated_angles> read_angles(std::string_view key, simdjson::dom::element found) {
        simdjson::dom::object object;
        if (found.get(object)) {
            fail(key, "expected an object, found " + text(found));
            return std::nullopt;
        }
        json_extras kept;  // unused: the object is written back as it is
        config_reader inner(object, prefix_ + std::string(key) + "/", kept, problems_);
        stated_angles stated;
        double base = 0;
        inner("rope_theta", base);
        if (base > 0) stated.base = base;
        if (!inner.read_rope_type(stated.scaling.type)) return std::nullopt;
        rotary_scaling::visit_fields(stated.scaling,
                                     [&](std::string_view name, auto& value) { inner(name, value, true); });
        inner.only_if_there("partial_rotary_factor", 1.0);
        inner.keep_rest(true);
        if (stated.scaling.high_freq_factor <= stated.scaling.low_freq_factor)
            inner.fail("high_freq_factor", "expected more than low_freq_factor, " +
                                               text(stated.scaling.low_freq_factor) + ", found " +
                                               text(stated.scaling.high_freq_factor));
        return stated;
    }
    // False if the type is unknown. Older files name the key "type".
    bool read_rope_type(rope_type& type) {
        std::string name(name_of(type));
        either("rope_type", "type", name);
        for (auto const known : {rope_type::unscaled, rope_type::linear, rope_type::llama3}) {
            type = known;
            if (name == name_of(known)) return true;
        }
        fail("rope_type", "expected \"default\", \"linear\" or \"llama3\", found \"" + printable(name) + '"');
        return false;
    }

    std::optional<simdjson::dom::element> take(std::string_view key, bool required, std::string const& wanted) {
        auto const found = keys_.find(key);
        if (found == keys_.end()) {
            if (required) fail(key, "expected " + wanted + ", found no such key");
            extras_.omitted.emplace(key);
            return std::nullopt;
        }
        auto const value = found->second;
        keys_.erase(found);
        return value;
    }

    // The value of a key that is written back unchanged; nullopt if it is null or missing.
    std::optional<simdjson::dom::element> keep(std::string_view key) {
        auto const found = keys_.find(key);
        if (found == keys_.end()) return std::nullopt;
        auto const value = found->second;
        keys_.erase(found);
        extras_.others.emplace(key, simdjson::minify(value));
        return value.is_null() ? std::nullopt : std::optional(value);
    }

    template <class T> void require_equal(std::string_view key, simdjson::dom::element found, T const& value) {
        nlohmann::ordered_json const wanted = value;
        if (nlohmann::ordered_json::parse(simdjson::minify(found)) != wanted)
            fail(key, "expected " + wanted.dump() + ", the one value that this library computes, found " + text(found));
    }

    void refuse(std::string_view key, simdjson::dom::element value) {
        fail(key, "unknown key, which may change what the model computes, with value " + text(value) +
                      "; remove it if it changes nothing");
    }
    void fail(std::string_view key, std::string sentence) {
        problems_.add(std::move(sentence), "key " + in_quotes(prefix_ + std::string(key)));
    }

    static std::string text(simdjson::dom::element value) { return printable(simdjson::minify(value)); }

    static std::string text(double x) { return nlohmann::ordered_json(x).dump(); }
    static std::string text(number_field const& range) {
        auto const whole = [](double x) { return std::to_string(static_cast<std::int64_t>(x)); };
        return " from " + whole(range.least) + " to " + whole(range.most);
    }

    static std::string expected(std::int64_t, std::string_view key) { return "an integer" + text(range_of(key)); }
    static std::string expected(std::uint64_t, std::string_view) { return "an integer of at least 0"; }
    static std::string expected(std::optional<std::int64_t> const&, std::string_view key) {
        return "a token id" + text(range_of(key)) + ", or null";
    }
    static std::string expected(double, std::string_view key) { return number_text(range_of(key)); }
    static std::string expected(field_value const& one) {
        return one.whole ? "an integer" + text(one.field) : number_text(one.field);
    }
    static std::string number_text(number_field const& range) {
        return range.without_ends ? "a number above " + text(range.least) + " and below " + text(range.most)
                                  : "a number from " + text(range.least) + " to " + text(range.most);
    }
    static std::string expected(bool, std::string_view) { return "true or false"; }
    static std::string expected(std::optional<bool> const&, std::string_view) { return "true or false"; }
    static std::string expected(std::vector<std::int64_t> const&, std::string_view key) {
        return "a token id" + text(range_of(key)) + ", a list of them, or null";
    }
    static std::string expected(std::string const&, std::string_view) { return "a string"; }
    static std::string expected(std::vector<std::string> const&, std::string_view) { return "a list of strings"; }
    template <class T> static std::string expected(std::optional<T> const&, std::string_view) { return "an object"; }

    static bool holds(std::string_view key, double x) { return field_value{range_of(key), x}.is_allowed(); }
    static bool read(simdjson::dom::element from, std::int64_t& to, std::string_view key) {
        return !from.get(to) && holds(key, static_cast<double>(to));
    }
    static bool read(simdjson::dom::element from, std::optional<std::int64_t>& to, std::string_view key) {
        std::int64_t id = 0;
        if (from.is_null())
            to.reset();
        else if (from.get(id) || !holds(key, static_cast<double>(id)))
            return false;
        else
            to = id;
        return true;
    }
    static bool read(simdjson::dom::element from, std::vector<std::int64_t>& to, std::string_view key) {
        to.clear();
        simdjson::dom::array list;
        if (from.is_null()) return true;
        if (from.get(list)) return read(from, to.emplace_back(), key);
        for (auto const entry : list)
            if (!read(entry, to.emplace_back(), key)) return false;
        return true;
    }
    static bool read(simdjson::dom::element from, std::uint64_t& to, std::string_view) { return !from.get(to); }
    static bool read(simdjson::dom::element from, double& to, std::string_view key) {
        return !from.get(to) && holds(key, to);
    }
    static bool read(simdjson::dom::element from, bool& to, std::string_view) { return !from.get(to); }
    static bool read(simdjson::dom::element from, std::optional<bool>& to, std::string_view) {
        bool value = false;
        if (from.get(value)) return false;
        to = value;
        return true;
    }
    static bool read(simdjson::dom::element from, std::string& to, std::string_view) {
        std::string_view value;
        if (from.get(value)) return false;
        to = value;
        return true;
    }
    static bool read(simdjson::dom::element from, std::vector<std::string>& to, std::string_view key) {
        simdjson::dom::array list;
        if (from.get(list)) return false;
        to.clear();
        for (auto const entry : list)
            if (!read(entry, to.emplace_back(), key)) return false;
        return true;
    }
    template <class T> bool read(simdjson::dom::element from, std::optional<T>& to, std::string_view key) {
        return read_object(from, to.emplace(), key);
    }
    template <class T> bool read_object(simdjson::dom::element from, T& to, std::string_view key) {
        simdjson::dom::object object;
        if (from.get(object)) return false;
        config_reader inner(object, prefix_ + std::string(key) + "/", to.extras, problems_);
        T::visit(to, inner);
        inner.keep_rest(T::describes_numbers);
        return true;
    }

    std::string prefix_;
    json_extras& extras_;
    problem_list& problems_;
    std::map<std::string, simdjson::dom::element, std::less<>> keys_;
};

// `rope_scaling` of config.json: null if unscaled.
inline nlohmann::ordered_json json_of(rotary_scaling const& scaling) {
    nlohmann::ordered_json json;
    if (scaling.type == rope_type::unscaled) return json;
    json["rope_type"] = name_of(scaling.type);
    rotary_scaling::visit_fields(scaling, [&](std::string_view key, auto value) { json[std::string(key)] = value; });
    return json;
}

// Builds the JSON of a description: the keys it visits, then the unknown ones. A key that the file omitted is omitted
// again as long as it has the value of `plain`.
template <class T> nlohmann::ordered_json json_of(T const& described, T const& plain);

class config_writer {
public:
    explicit config_writer(nlohmann::ordered_json& json) : json_(json) {}

    template <class T> void operator()(std::string_view key, T const& value, bool = false) {
        json_[std::string(key)] = value;
    }
    template <class T> void operator()(std::string_view key, std::optional<T> const& value, bool = false) {
        object(key, value, [] { return T{}; });
    }
    template <class T, class Make> void object(std::string_view key, std::optional<T> const& value, Make const& plain) {
        if (value) json_[std::string(key)] = json_of(*value, plain());
    }
    void operator()(number_field const& field, index_t size) { json_[std::string(field.key)] = size; }
    void number(field_value const& one) {
        auto& json = json_[std::string(one.field.key)];
        if (one.whole)
            json = static_cast<std::int64_t>(one.value);
        else
            json = one.value;
    }
    void operator()(std::string_view key, std::optional<std::int64_t> const& value, bool = false) {
        json_[std::string(key)] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
    }
    void operator()(std::string_view key, std::optional<bool> const& value, bool = false) {
        if (value) json_[std::string(key)] = *value;
    }
    template <class T> void only(std::string_view key, T value, bool = false) { json_[std::string(key)] = value; }
    template <class T> void only_if_there(std::string_view, T, bool = false) {}  // the value read is among the extras
    template <class T> void either(std::string_view key, std::string_view, T const& value) { (*this)(key, value); }
    // One id is a number, none is null.
    void operator()(std::string_view key, std::vector<std::int64_t> const& ids, bool = false) {
        auto& json = json_[std::string(key)];
        if (ids.size() == 1)
            json = ids.front();
        else if (!ids.empty())
            json = ids;
    }
    void rotary_angles(double base, rotary_scaling const& scaling) {
        (*this)("rope_theta", base);
        json_["rope_scaling"] = json_of(scaling);
    }
    void head_dim(index_t size, index_t) {
        if (size > 0) json_["head_dim"] = size;
    }

private:
    nlohmann::ordered_json& json_;
};

template <class T> nlohmann::ordered_json json_of(T const& described, T const& plain) {
    auto json = nlohmann::ordered_json::object();
    T::visit(described, config_writer(json));
    if (!described.extras.omitted.empty()) {
        auto usual = nlohmann::ordered_json::object();
        T::visit(plain, config_writer(usual));
        for (auto const& key : described.extras.omitted)
            if (json.contains(key) && usual.contains(key) && json[key] == usual[key]) json.erase(key);
    }
    for (auto const& [key, by] : described.extras.stated_by) {
        if (!described.extras.others.contains(by)) json[by] = json[key];
        json.erase(key);
    }
    for (auto const& [key, text] : described.extras.others) json[key] = nlohmann::ordered_json::parse(text);
    return json;
}

// The kind of model follows from the name of the architecture, otherwise from model_type.
inline model_description empty_description(simdjson::dom::object object, std::string const& path) {
    std::string_view name;
    std::string_view type;
    if (object["architectures"].at(0).get(name)) name = {};
    if (object["model_type"].get(type)) type = {};
    if (name == "Autoencoder") return model_description::of(model_kind::autoencoder);
    if (name == "LlamaForCausalLM" || (name.empty() && type == "llama"))
        return model_description::of(model_kind::autoregressive);
    if (auto const* const head = find_head(name.empty() ? type : name))
        return model_description::of(model_kind::calm, head->name);
    std::string architectures;
    for (auto const* const head : known_heads()) architectures += ", " + std::string(head->architecture);
    throw error(errc::model_file, path, "key 'architectures'",
                "expected a list whose first is one of Autoencoder, LlamaForCausalLM" + architectures + ", found " +
                    (name.empty() ? "none" : in_quotes(name)));
}

}  // namespace detail

// Parses the text of a config.json; errors name it `path`. Throws errc::model_file with the path and every wrong key.
// Wrong are a missing size, a value of another type, a duplicate key, a value that this library does not compute, and
// an unknown key that may not be harmless.
inline model_description parse_config_json(std::string_view text, std::string const& path) {
    simdjson::dom::parser parser;
    auto const object = detail::json_object(parser, text, json_limit::config, path);
    auto description = detail::empty_description(object, path);
    detail::problem_list problems;
    detail::config_reader reader(object, "", description.extras, problems);
    model_description::visit(description, reader);
    reader.keep_rest(model_description::describes_numbers);
    problems.throw_if_any(path);
    if (description.extras.omitted.contains("num_key_value_heads"))
        description.llama.num_key_value_heads = description.llama.num_attention_heads;
    return description;
}

// Reads a config.json. Throws as parse_config_json, and errc::model_file if the file cannot be read.
inline model_description read_config_json(std::string const& path) {
    return parse_config_json(mapped_file::open(path, errc::model_file).text(), path);
}

// eos_token_id of a generation_config.json, which transformers prefers to that of config.json; empty if it has none.
// Other keys are not read. Throws errc::model_file if it is no JSON object or the ids are invalid.
inline std::vector<std::int64_t> read_generation_config(std::string const& path) {
    auto const file = mapped_file::open(path, errc::model_file);
    simdjson::dom::parser parser;
    auto const object = detail::json_object(parser, file.text(), json_limit::config, path);
    json_extras unused;
    detail::problem_list problems;
    std::vector<std::int64_t> ids;
    detail::config_reader(object, "", unused, problems)("eos_token_id", ids);
    problems.throw_if_any(path);
    return ids;
}

// The text of a config.json: published keys, our object "calm" if there is one, and the unknown keys. Throws
// errc::usage if a string is not UTF-8, or if the text is too long to be read again.
inline std::string config_json_text(model_description const& description) {
    auto plain = model_description::of(description.kind, description.head.facts == nullptr ? default_head::name
                                                                                           : description.head.name());
    plain.llama.num_key_value_heads = description.llama.num_attention_heads;
    try {
        auto text = detail::json_of(description, plain).dump(2) + "\n";
        detail::require_readable(text, json_limit::config, "config.json");
        return text;
    } catch (nlohmann::json::type_error const&) {
        throw error(errc::usage, "config.json: expected UTF-8 in every name and path, found other bytes");
    }
}

}  // namespace calm
