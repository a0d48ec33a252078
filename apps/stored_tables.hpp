#pragma once
// Stored models in words and tables, for convert and inspect.

#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"

namespace calm::apps {

// A line a tensor: name, shape, type and bytes; then their sums.
std::string tensor_table_text(stored_weights const& weights);

// Kind, files, sizes, parameters by module, FLOPs a token and what the model was trained on.
std::string model_text(stored_model const& model);

}  // namespace calm::apps
