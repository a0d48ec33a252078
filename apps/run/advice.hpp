#pragma once
// Advice for a model that learns no context: measures that helped in experiments (docs/results.md).

#include <string>
#include <vector>

#include "registry.hpp"

namespace calm::apps {

// Measures that helped models like this configuration's on V tokens, as a list for a sentence. Suggests other
// configurations if they are among the compiled ones. `command` is where the user gives --vocabulary.
std::string what_helps(entry const& one, index_t V, std::vector<entry> const& compiled = compiled_configurations(),
                       std::string const& command = "train tokenizer");

// The message for a model whose Brier-1 is not above the unigram's after a fifth of its run.
std::string no_context_sentence(double brier_1, double unigram_brier_1, std::string const& helps);

}  // namespace calm::apps
