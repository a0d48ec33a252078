#include "command/text_choices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "calm/base/detail/number_text.hpp"
#include "calm/model/heads.hpp"
#include "calm/text/holdout.hpp"
#include "command/number_within.hpp"

namespace calm::apps {

namespace {

constexpr std::string_view head_prefix = "head-";

std::string text_of_number(index_t value) {
    return std::to_string(value);
}
std::string text_of_number(double value) {
    return shortest(value);
}

std::optional<learning_rate_schedule> schedule_named(std::string const& name) {
    if (name == "cosine") return learning_rate_schedule::cosine;
    if (name == "constant") return learning_rate_schedule::constant;
    return std::nullopt;
}

bool is_head_option(std::string const& option) {
    return std::any_of(known_heads().begin(), known_heads().end(),
                       [&](auto const* head) { return head->objective.find_option(option) != nullptr; });
}

// The number if one of the heads accepts it for this option.
std::optional<double> head_number(std::string const& option, std::string const& text) {
    constexpr double any = std::numeric_limits<double>::max();
    auto const value = number_within(text, -any, any);
    auto const takes = [&](head_traits const* head) {
        auto const* const number = head->objective.find_option(option);
        if (number == nullptr || (number->whole && std::trunc(*value) != *value)) return false;
        return field_value{number->field, *value}.is_allowed();
    };
    return value && std::any_of(known_heads().begin(), known_heads().end(), takes) ? value : std::nullopt;
}

}  // namespace

void take(field_values& values, head_numbers const& numbers) {
    for (auto& one : values)
        if (auto const asked = numbers.find(std::string(one.field.option)); asked != numbers.end())
            one.value = asked->second.value_or(one.value);
}

recipe_record record_of(text_choices const& choices) {
    recipe_record all;
    if (!choices.configuration.empty()) all.push_back({"config", choices.configuration});
    if (!choices.holdout.empty()) all.push_back({"holdout", choices.holdout});
    each_number(choices, [&](auto const& choice, auto const& place) {
        if (place) all.push_back({choice.option, text_of_number(*place)});
    });
    if (choices.schedule)
        all.push_back({"schedule", *choices.schedule == learning_rate_schedule::cosine ? "cosine" : "constant"});
    for (auto const& [option, value] : choices.head)
        if (value) all.push_back({std::string(head_prefix) + option, text_of_number(*value)});
    return all;
}

text_choices choices_of(recipe_record const& record, std::string const& path) {
    text_choices made;
    for (auto const& [option, value] : record) {
        auto const refuse = [&, &name = option, &found = value](char const* expected) {
            throw error(errc::model_file, path, name, sentence(expected, ", found '", found, "'"));
        };
        bool known = false;
        each_number(made, [&, &name = option, &text = value](auto const& choice, auto& place) {
            if (name != choice.option) return;
            known = true;
            place = number_within(text, choice.least, choice.most);
            if (!place) refuse("expected a number that this option takes");
        });
        if (known) continue;
        if (option == "config") {
            made.configuration = value;
        } else if (option == "holdout") {
            made.holdout = holdout::parse(value).text();
        } else if (option == "schedule") {
            made.schedule = schedule_named(value);
            if (!made.schedule) refuse("expected constant or cosine");
        } else if (option.starts_with(head_prefix) && is_head_option(option.substr(head_prefix.size()))) {
            auto& place = made.head[option.substr(head_prefix.size())];
            place = head_number(option.substr(head_prefix.size()), value);
            if (!place) refuse("expected a number that this option takes");
        } else {
            refuse("expected a choice that this program knows");
        }
    }
    return made;
}

}  // namespace calm::apps
