#pragma once
// Whether a text to score was in a model's training text.

#include "calm/io/stored_model.hpp"
#include "command/options.hpp"

namespace calm::apps {

// Logs a warning if documents that evaluation would score were in the training text, as far as the text and the holdout
// in config.json show. A copy of a file under another name is not recognised.
void log_seen_text(stored_model const& model, data_options const& data);

}  // namespace calm::apps
