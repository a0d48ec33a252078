#pragma once
// plan.json, the record of `train text` in its directory: what it was asked, what it planned, how far it is.

#include <optional>
#include <string>
#include <vector>

#include "calm/runs/recipe_record.hpp"

namespace calm::apps {

inline constexpr char const* plan_file = "plan.json";

struct text_record {
    recipe_record given;            // choices of the user, and what else the result depends on
    recipe_record plan;             // all choices
    recipe_record why;              // their reasons, for people
    std::vector<std::string> done;  // the names of the stages that are through
    friend bool operator==(text_record const&, text_record const&) = default;
};

// What a directory holds; nothing where it has no plan.json. Throws errc::model_file for a file that is none of ours.
std::optional<text_record> read_text_record(std::string const& directory);

// Replaces plan.json, whole or not at all. Throws errc::storage.
void write_text_record(std::string const& directory, text_record const& record);

}  // namespace calm::apps
