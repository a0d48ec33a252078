#pragma once
// plan.json, the record of `train text` in its directory: the request, the plan and the progress.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calm/runs/recipe_record.hpp"

namespace calm::apps {

inline constexpr char const* plan_file = "plan.json";
// The directories of the models, in that of `train text`.
inline constexpr char const* autoencoder_stage = "autoencoder";
inline constexpr char const* model_stage = "model";
// The directory of a stage if `path` is that of `train text`, else the path itself.
std::string stage_in(std::string const& path, char const* stage);

struct text_record {
    recipe_record given;            // the user's choices and other inputs of the result
    recipe_record plan;             // all choices
    recipe_record why;              // a reason per choice
    std::vector<std::string> done;  // names of the finished stages
    friend bool operator==(text_record const&, text_record const&) = default;
};

// The text of a plan.json.
std::string plan_text(text_record const& record);
// The record in such a text. Throws errc::model_file with `path` for an invalid one.
text_record plan_in(std::string_view text, std::string const& path);

// Reads a directory's plan.json; nothing if there is none. Throws errc::model_file for an invalid file.
std::optional<text_record> read_text_record(std::string const& directory);

// Replaces plan.json atomically. Throws errc::storage.
void write_text_record(std::string const& directory, text_record const& record);

}  // namespace calm::apps
