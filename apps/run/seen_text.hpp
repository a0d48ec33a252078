#pragma once
// Whether a text to score was in a model's training text.

#include <string>

#include "calm/io/stored_model.hpp"
#include "command/options.hpp"

namespace calm::apps {

// A warning if documents that evaluation would score were in the training text, as far as the text and the holdout in
// config.json show; else "". A copy of a file under another name is not recognised.
std::string seen_text_sentence(stored_model const& model, data_options const& data);

}  // namespace calm::apps
