#pragma once
// Trains a configuration to the end of a run: text, checkpoints, evaluations and samples on the way. They return the
// exit status.

#include "command/options.hpp"
#include "registry.hpp"

namespace calm::apps {

// `work` is that of the configuration on the device that trains it.
int train_autoencoder(entry const& one, compiled_functions const& work, train_options const& o);
int train_calm(entry const& one, compiled_functions const& work, train_options const& o);
int train_autoregressive(entry const& one, compiled_functions const& work, train_options const& o);

}  // namespace calm::apps
