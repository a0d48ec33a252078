#pragma once
// A training run around the loop: recipes from options, what config.json says, when to stop, and what to say.

#include <functional>
#include <string>

#include "calm/io/model_directory.hpp"
#include "registry.hpp"
#include "report.hpp"
#include "text_data.hpp"

namespace calm::apps {

// The defaults with what the command line says instead. Without --steps and --minutes the default steps hold.
autoencoder_recipe recipe_for(autoencoder_recipe r, train_options const& o);
calm_recipe<energy_objective> recipe_for(calm_recipe<energy_objective> r, train_options const& o);

// Our object in config.json.
calm_description description_of(std::string const& configuration, train_options const& o, std::uint64_t data_seed,
                                index_t block, packing mode, tokenizer const& words);

// The last word of a run: where the model lies; the exit status, 0 or 128 + the signal that ended it early.
int end_of_run(run_report& report, std::string const& out);

// Makes the new directory of a model. Throws errc::storage where something is there.
void make_directory(std::string const& out);

// What to tell about a model whose Brier-1 is not above the unigram's after a fifth of its run, and what to change.
std::string no_context_sentence(double brier_1, double unigram_brier_1, double rate);

// The file of token and pair counts in a CALM's directory.
inline constexpr char const* bigram_file = "bigram.counts";

}  // namespace calm::apps
