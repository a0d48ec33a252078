#pragma once
// Models of any kind and tokenizer, evaluated on one text, side by side.

#include <string>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "calm/train/evaluation.hpp"

namespace calm::apps {

struct compared_model {
    stored_model model;
    evaluation found;
};

// A table, the last line without its end: Brier-1, BrierLM and bits a byte with their errors. BrierLM counts tokens, so
// it stands for the models of the first one's tokenizer alone; where there are others a sentence says so. An
// autoencoder has neither.
std::string comparison_text(std::vector<compared_model> const& models);

}  // namespace calm::apps
