#pragma once
// Initial weights from --init or from a checkpoint.

#include <optional>
#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"

namespace calm::apps {

// The model whose weights a run starts from: the one in `directory` if given, else --init, else none. Throws
// errc::tokenizer if the --init model has another tokenizer, since its weights belong to other tokens.
std::optional<stored_model> initial_model(std::string const& directory, train_options const& o,
                                          tokenizer const& tokenizer);

}  // namespace calm::apps
