#pragma once
// What to do about a model that learns no context: what was seen to help where it was measured (docs/results.md).

#include <string>
#include <vector>

#include "registry.hpp"

namespace calm::apps {

// What helped models like this configuration's on V tokens, as a list for a sentence. Other configurations are named
// where they are among those that are compiled.
std::string what_helps(entry const& one, index_t V, std::vector<entry> const& compiled = compiled_configurations());

// What to tell about a model whose Brier-1 is not above the unigram's after a fifth of its run.
std::string no_context_sentence(double brier_1, double unigram_brier_1, std::string const& helps);

}  // namespace calm::apps
