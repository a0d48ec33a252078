#pragma once
// What transformers reads of a tokenizer that was trained here: its files, and its special tokens in config.json.

#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm::apps {

// The tokenizer.json of a tokenizer that was trained here: the package `tokenizers` gives the same ids, with BOS before
// a text, and load_tokenizer() reads it as an equal tokenizer. Throws errc::usage for another tokenizer.
std::string tokenizer_json_of(tokenizer const& tokenizer);
// The tokenizer_config.json next to it.
std::string tokenizer_config_json();

// Writes both next to a copy in `directory` of an autoregressive model with such a tokenizer, unless there is a
// tokenizer.json already. Returns whether it did. Throws errc::storage.
bool write_tokenizer_json(stored_model const& model, std::string const& directory);

// Adds BOS, EOS and PAD of its tokenizer to the description of a model that was trained here, unless it states any.
// Throws as load_tokenizer.
void add_special_ids(stored_model& model);

}  // namespace calm::apps
