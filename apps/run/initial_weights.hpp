#pragma once
// What a run takes from the model of --init: its weights, and its sizes and tokenizer if no option names others.

#include <optional>
#include <string>

#include "calm/io/stored_model.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"
#include "registry.hpp"

namespace calm::apps {

// A configuration to train, and the model of --init.
struct configuration_and_init {
    entry const& configuration;
    std::optional<stored_model> init;
};
// The configuration of a run that trains this kind of model: that of --config, else one with the sizes of the model of
// --init. Throws as calm_named, autoregressive_named, configuration_of and opened_model, and errc::config if that model
// is of another kind or has other sizes than --config. Collective.
configuration_and_init configuration_to_train(train_options const& o, model_kind kind);

// The recipe that fine-tunes a published model: AdamW at a low learning rate, because Muon at that of a new model would
// undo its training.
autoregressive_recipe recipe_for_published();

// Training defaults of --config or --init, to be shown. As configuration_to_train, for one process.
recipes defaults_of(train_options const& o);
// Those of a run of `one`, from the model of --init if there is one.
recipes defaults_of(entry const& one, std::optional<stored_model> const& init);

// The tokenizer of a run.
struct chosen_tokenizer {
    tokenizer tokens;
    model_files files;              // that hold it in the directory of a model
    std::optional<bool> bos_first;  // as in tokenizer_description
};
// The tokenizer of --tokenizer, else the one of --init. Throws errc::tokenizer if they differ.
chosen_tokenizer choose_tokenizer(train_options const& o, std::optional<stored_model> const& init);

// Throws errc::tokenizer, with what to do, if the model of --init has another tokenizer: its weights belong to other
// tokens.
void require_tokenizer_of(stored_model const& init, tokenizer const& tokenizer, std::string const& remedy);

// The packing of an autoregressive model's text: --mode, else that of the model of --init. A published model does not
// state it: `published` if its BOS is its EOS, so that one stands between documents, else padded.
packing packing_from(std::optional<stored_model> const& init, data_options const& data, tokenizer const& tokenizer);

}  // namespace calm::apps
