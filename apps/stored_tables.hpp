#pragma once
// Formats stored models as text and tables, for convert and inspect.

#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"

namespace calm::apps {

// One line per tensor (name, shape, type, bytes), then the totals.
std::string tensor_table_text(stored_weights const& weights);

// Kind, files, sizes, parameters per module, FLOPs per token and training data.
std::string model_text(stored_model const& model);

}  // namespace calm::apps
