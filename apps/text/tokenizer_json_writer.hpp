#pragma once
// The files with which transformers reads a tokenizer that was trained here.

#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm::apps {

// The tokenizer.json of a tokenizer that was trained here: the package `tokenizers` gives the same ids, with BOS before
// a text, and load_tokenizer() reads it as an equal tokenizer. Throws errc::usage for another tokenizer.
std::string tokenizer_json_of(tokenizer const& words);
// The tokenizer_config.json next to it.
std::string tokenizer_config_json();

// Writes both next to a copy in `directory` of an autoregressive model with such a tokenizer, unless there is a
// tokenizer.json already. Returns whether it did. Throws errc::storage.
bool write_tokenizer_json(stored_model const& model, std::string const& directory);

}  // namespace calm::apps
