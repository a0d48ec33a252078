#pragma once
// What training starts from where --init names a model.

#include <optional>
#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"

namespace calm::apps {

// The model whose weights a run starts from: the one in `directory` if that is not empty, else that of --init, else
// none. Throws errc::tokenizer where --init names a model of another tokenizer: its weights would mean other tokens.
std::optional<stored_model> initial_model(std::string const& directory, train_options const& o, tokenizer const& words);

}  // namespace calm::apps
