#pragma once
// Compares evaluations of several models on the same text. The models may differ in kind and tokenizer.

#include <string>
#include <vector>

#include "calm/evaluate/evaluation.hpp"
#include "calm/io/stored_model.hpp"

namespace calm::apps {

struct compared_model {
    stored_model model;
    evaluation found;
};

// Formats a table of Brier-1, BrierLM and bits per byte with standard errors; the last line has no newline. Brier-1 and
// BrierLM count tokens, so they appear only for models that share the first model's tokenizer; a note below the table
// says so if others are present. An autoencoder has none of these scores.
std::string comparison_text(std::vector<compared_model> const& models);

}  // namespace calm::apps
