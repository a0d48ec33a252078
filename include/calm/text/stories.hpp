#pragma once
/// \file
/// Generates simple English stories, to try things out without data: a grammar with a few free choices per story, each
/// of which recurs later in it. So text is predictable from the story so far, but much less from the last word alone.
/// \shows{tests/text/stories_test.cpp,a_story_is_a_function_of_seed_split_and_number}

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/text/holdout.hpp"

namespace calm {

namespace detail {

// All measured results depend on the words: changing one changes all stories.
struct story_child {
    std::string_view name, child, they;
};
inline constexpr std::array<story_child, 10> story_children{{
    {"Mia", "girl", "she"},
    {"Tom", "boy", "he"},
    {"Anna", "girl", "she"},
    {"Ben", "boy", "he"},
    {"Lily", "girl", "she"},
    {"Max", "boy", "he"},
    {"Rosa", "girl", "she"},
    {"Sam", "boy", "he"},
    {"Emma", "girl", "she"},
    {"Leo", "boy", "he"},
}};

struct story_thing {
    std::string_view adjective, noun;
};
inline constexpr std::array<story_thing, 10> story_things{{
    {"red", "ball"},
    {"blue", "kite"},
    {"new", "drum"},
    {"green", "jacket"},
    {"small", "boat"},
    {"silver", "bell"},
    {"golden", "ring"},
    {"yellow", "basket"},
    {"soft", "blanket"},
    {"brown", "box"},
}};

// Where the child lives and goes.
inline constexpr std::array<std::string_view, 10> story_places{"garden", "river", "hill",   "park",   "lake",
                                                               "farm",   "mill",  "bridge", "market", "school"};

inline constexpr std::array<std::string_view, 10> story_helpers{"dog",  "cat",  "fox",    "goat",   "bear",
                                                                "duck", "frog", "rabbit", "turtle", "horse"};

// The loss of the thing, and where the helper finds it.
struct story_problem {
    std::string_view loss, where;
};
inline constexpr std::array<story_problem, 8> story_problems{{
    {"fell in a hole", "hole"},
    {"was stuck in a tree", "tree"},
    {"was lost in the grass", "grass"},
    {"was under a rock", "rock"},
    {"fell in the water", "water"},
    {"was taken by a wolf", "wolf"},
    {"sank in the mud", "mud"},
    {"was lost in the snow", "snow"},
}};

inline constexpr std::array<std::string_view, 8> story_treats{"bread", "cake",   "soup", "milk",
                                                              "honey", "cheese", "jam",  "apples"};

// The number of values of each free choice, in order of appearance.
inline constexpr std::array<std::uint32_t, 6> story_options{story_children.size(), story_things.size(),
                                                            story_places.size(),   story_problems.size(),
                                                            story_helpers.size(),  story_treats.size()};
using story_choices = std::array<std::uint32_t, story_options.size()>;

inline constexpr std::string_view story_template =
    "{name} was a little {child}, and {they} had a {adjective} {noun}. "
    "One day {name} took the {noun} to the {place}, but the {noun} {loss}. "
    "{name} was sad, and a {helper} by the {place} saw {name}. "
    "\"Why are you sad?\" said the {helper} to {name}. "
    "\"The {noun} {loss},\" said {name} to the {helper}. "
    "So the {helper} went to the {where}, got the {noun}, and gave the {noun} to {name}. "
    "{name} was happy, and {they} gave the {helper} some {treat}. "
    "Now {name} and the {helper} are friends, and the {helper} has {treat} with {name} by the {place}.";

// The story for the given choices.
[[nodiscard]] inline std::string tell_story(story_choices const& choices) {
    auto const& child = story_children[choices[0]];
    auto const& thing = story_things[choices[1]];
    auto const& problem = story_problems[choices[3]];
    auto const word = [&](std::string_view name) -> std::string_view {
        if (name == "name") return child.name;
        if (name == "child") return child.child;
        if (name == "they") return child.they;
        if (name == "place") return story_places[choices[2]];
        if (name == "adjective") return thing.adjective;
        if (name == "noun") return thing.noun;
        if (name == "loss") return problem.loss;
        if (name == "where") return problem.where;
        if (name == "helper") return story_helpers[choices[4]];
        return story_treats[choices[5]];
    };
    std::string text;
    for (std::size_t at = 0; at < story_template.size();) {
        if (story_template[at] != '{') {
            text += story_template[at++];
            continue;
        }
        std::size_t const end = story_template.find('}', at);
        text += word(story_template.substr(at + 1, end - at - 1));
        at = end + 1;
    }
    return text;
}

}  // namespace detail

/// Story i of a split, determined by the seed (stream::story at step `of`). The splits have separate random numbers.
[[nodiscard]] inline std::string story(std::uint64_t data_seed, split of, std::uint64_t i) {
    random_sequence random({data_seed, stream::story, static_cast<std::uint32_t>(of)}, 16 * i);
    detail::story_choices choices{};
    for (std::size_t c = 0; c < choices.size(); ++c) choices[c] = random.below(detail::story_options[c]);
    return detail::tell_story(choices);
}

/// The first n stories of a split. In the source `stories:N` of programs and read_text, N counts tokens instead.
[[nodiscard]] inline std::vector<std::string> stories(std::size_t n, std::uint64_t data_seed = 1,
                                                      split of = split::train) {
    std::vector<std::string> all;
    for (std::uint64_t i = 0; i < n; ++i) all.push_back(story(data_seed, of, i));
    return all;
}

}  // namespace calm
