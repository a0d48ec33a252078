#include "plugin/chosen_sizes.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "calm/base/detail/sha256.hpp"
#include "calm/model/heads.hpp"
#include "command/number_within.hpp"
#include "command/suggest.hpp"

namespace calm::apps {

namespace {

constexpr char const* input_names[] = {"tokens", "latents", "both"};  // as input_kind

// Without spaces at both ends.
std::string trimmed(std::string const& text) {
    auto const first = text.find_first_not_of(' ');
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

// Assigns the values of one list. Every key is asked for once, in a fixed order.
class assignments {
public:
    explicit assignments(std::string const& text) {
        std::istringstream words(text);
        for (std::string word; std::getline(words, word, ',');) {
            auto const at = word.find('=');
            auto const key = trimmed(word.substr(0, at));
            auto const value = at == std::string::npos ? "" : trimmed(word.substr(at + 1));
            if (key.empty() || value.empty())
                throw error(errc::config, "--set: expected KEY=VALUE,..., found '" + word +
                                              "'; sweep compares several values of a size by --vary patch_size=1,2");
            std::erase_if(given_, [&](auto const& one) { return one.first == key; });  // the last one counts
            given_.emplace_back(key, value);
        }
    }

    // The value given for a key, or null.
    std::string const* take(std::string const& key) {
        known_.push_back(key);
        auto const found =
            std::find_if(given_.begin(), given_.end(), [&](auto const& one) { return one.first == key; });
        return found == given_.end() ? nullptr : &found->second;
    }
    // Notes in the name that a value differs from the base's.
    void changed(std::string const& key, std::string const& value) {
        name_ += (name_.empty() ? ":" : ",") + key + "=" + value;
    }
    template <class Number> void number(std::string const& key, number_field const& field, Number& to) {
        auto const* const text = take(key);
        if (text == nullptr) return;
        auto const least = static_cast<index_t>(field.least), most = static_cast<index_t>(field.most);
        auto const value = number_within(*text, least, most);
        if (!value)
            throw error(errc::config, sentence("--set ", key, ": expected a whole number from ", least, " to ", most,
                                               ", found '", *text, "'"));
        if (static_cast<index_t>(to) == *value) return;
        to = static_cast<Number>(*value);
        changed(key, std::to_string(*value));
    }
    // The index of the value among the names; `standard` if it is not given.
    std::size_t choice(std::string const& key, std::vector<std::string> const& names, std::size_t standard) {
        auto const* const text = take(key);
        if (text == nullptr) return standard;
        auto const found = std::find(names.begin(), names.end(), *text);
        if (found == names.end())
            throw error(errc::config, sentence("--set ", key, ": expected one of ", listed(names), ", found '", *text,
                                               "'", did_you_mean(*text, names)));
        auto const index = static_cast<std::size_t>(found - names.begin());
        if (index != standard) changed(key, *text);
        return index;
    }
    // All fields of an aggregate; `prefix` precedes the keys of those that are not published.
    template <class Sizes> void fields(Sizes& sizes, std::string const& prefix = "") {
        Sizes::visit_fields(sizes, [&](number_field const& field, index_t& size) {
            number((field.published ? "" : prefix) + std::string(field.key), field, size);
        });
    }

    // Throws errc::config if a given key was never asked for.
    void require_known(std::string const& owner) const {
        for (auto const& [key, value] : given_)
            if (std::find(known_.begin(), known_.end(), key) == known_.end())
                throw error(errc::config, sentence("--set ", key, ": ", owner, " has no such size; it has ",
                                                   listed(known_), did_you_mean(key, known_)));
    }
    [[nodiscard]] std::string const& name() const { return name_; }

private:
    std::vector<std::pair<std::string, std::string>> given_;
    std::vector<std::string> known_;
    std::string name_;
};

// Another type of head keeps the sizes that it shares with the former one.
void choose_head(assignments& given, configuration<any_head>& c, recipes& defaults) {
    std::vector<std::string> names;
    std::size_t now = 0;
    for (auto const* const head : known_heads()) {
        if (!head->type.starts_with("calm::")) continue;
        if (head == c.head.facts) now = names.size();
        names.emplace_back(head->name);
    }
    auto const chosen = given.choice("head_type", names, now);
    if (chosen != now) {
        any_head head(head_named(names[chosen]));
        for (auto& size : head.sizes)
            if (auto const* const former = c.head.sizes.find(size.field.key);
                former != nullptr && field_value{size.field, former->value}.is_allowed())
                size.value = former->value;
        c.head = std::move(head);
        defaults.calm.objective = any_objective(c.head.facts->objective);
    }
    for (auto& size : c.head.sizes) given.number(std::string(size.field.key), size.field, size.value);
}

void choose(assignments& given, configuration<any_head>& c, recipes& defaults) {
    given.fields(c.autoencoder, "autoencoder.");
    auto llama = llama_sizes_of(c);
    given.fields(llama);
    choose_head(given, c, defaults);
    auto const input =
        given.choice("input", {std::begin(input_names), std::end(input_names)}, static_cast<std::size_t>(c.input));
    c = configuration_from(c.autoencoder, llama, c.head, static_cast<input_kind>(input));
}

void choose(assignments& given, autoregressive_configuration& c, recipes&) {
    given.fields(c.llama);
    c.tie_word_embeddings = given.choice("tie_word_embeddings", {"false", "true"}, c.tie_word_embeddings ? 1 : 0) == 1;
}

// The stored model that would have these sizes, for the checks of stored models.
stored_model stored_as(configuration<any_head> const& c) {
    stored_model m;
    m.description = model_description::of(model_kind::calm);
    m.sizes = c;
    return m;
}
stored_model stored_as(autoregressive_configuration const& c) {
    stored_model m;
    m.description = model_description::of(model_kind::autoregressive);
    m.description.llama = c.llama;
    return m;
}

// Every size as an assignment.
class listed_sizes {
public:
    template <class Sizes> void fields(Sizes const& sizes, std::string const& prefix = "") {
        Sizes::visit_fields(sizes, [&](number_field const& field, index_t size) {
            add((field.published ? "" : prefix) + std::string(field.key), std::to_string(size));
        });
    }
    void add(std::string const& key, std::string const& value) {
        text_ += (text_.empty() ? "" : ",") + key + "=" + value;
    }
    [[nodiscard]] std::string const& text() const { return text_; }

private:
    std::string text_;
};

std::string assignments_of(configuration<any_head> const& c) {
    listed_sizes all;
    all.fields(c.autoencoder, "autoencoder.");
    all.fields(llama_sizes_of(c));
    all.add("head_type", std::string(c.head.name()));
    for (auto const& size : c.head.sizes)
        all.add(std::string(size.field.key), std::to_string(static_cast<index_t>(size.value)));
    all.add("input", input_names[static_cast<std::size_t>(c.input)]);
    return all.text();
}

std::string assignments_of(autoregressive_configuration const& c) {
    listed_sizes all;
    all.fields(c.llama);
    all.add("tie_word_embeddings", c.tie_word_embeddings ? "true" : "false");
    return all.text();
}

}  // namespace

entry with_sizes(entry const& base, std::string const& text) {
    assignments given(text);
    entry one{.name = base.name, .sizes = base.sizes, .defaults = base.defaults, .on_demand = true};
    std::visit([&](auto& sizes) { choose(given, sizes, one.defaults); }, one.sizes);
    given.require_known("the configuration " + base.name);
    one.name += given.name();
    auto const problems = std::visit([](auto const& sizes) { return impossible_sizes(stored_as(sizes)); }, one.sizes);
    if (!problems.empty()) throw error(errc::config, "the configuration " + one.name + ": " + problems.front());
    return one;
}

std::string name_with_sizes(entry const& base, any_sizes const& sizes) {
    return with_sizes(base, std::visit([](auto const& chosen) { return assignments_of(chosen); }, sizes)).name;
}

std::string name_with_sizes(std::string const& configuration, std::string const& assignments) {
    char const* const between = configuration.find(':') == std::string::npos ? ":" : ",";
    return configuration_named(configuration + between + assignments).name;
}

std::string folder_name(std::string const& configuration) {
    constexpr std::size_t longest = 200;  // a name in a folder has at most 255 bytes
    if (configuration.size() <= longest) return configuration;
    sha256 sum;
    sum.add(configuration);
    auto const digest = "..." + sum.hex().substr(0, 32);
    return configuration.substr(0, longest - digest.size()) + digest;
}

}  // namespace calm::apps
