#pragma once
// What programs do with a stored model of any configuration: evaluate it, and generate text with it.

#include <cstdint>
#include <optional>
#include <vector>

#include "calm/evaluate/evaluation.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"
#include "compiled_functions.hpp"

namespace calm::apps {

bool is_autoregressive(stored_model const& stored);
// K, tokens per position: 1 for an autoregressive model.
index_t tokens_per_position(stored_model const& stored);

// Scores a model on the text of the options. `from` loads models of its configuration.
evaluation evaluate_stored(loading const& from, evaluate_options const& o, stored_model const& stored);

// Generates texts for the prompts or the JSON lines of the options. Returns the exit status. Throws errc::config for an
// autoencoder.
int generate_stored(loading const& from, generate_options const& o, stored_model const& stored);

// The latent vectors (P, L) of texts' ids, one after another; PAD fills the last patch of each. Throws errc::usage for
// an autoregressive model.
std::vector<std::vector<float>> latents_of_texts(loading const& from, stored_model const& stored,
                                                 tokenizer const& tokenizer,
                                                 std::vector<std::vector<token_id>> const& texts);

// For one text with one draw per patch; per token for an autoregressive model.
double seconds_per_patch(loading const& from, execution_options const& o, stored_model const& stored);

// Adds what only the programs know: how the text was packed, and the optimum if the source's distribution is known.
evaluation completed(evaluation found, packing mode, data_options const& data, std::uint64_t data_seed);

}  // namespace calm::apps
