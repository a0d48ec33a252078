#pragma once
// Trains a configuration to the end of a run: text, checkpoints, evaluations and samples on the way. They return the
// exit status.

#include <optional>

#include "calm/io/stored_model.hpp"
#include "command/options.hpp"
#include "registry.hpp"

namespace calm::apps {

// What a run trains.
struct training_job {
    entry const& configuration;
    compiled_functions const& work;         // of the configuration, on the device that trains it
    std::optional<stored_model> init = {};  // the model of --init, if the options name one
};

int train_autoencoder(training_job const& job, train_options const& o);
int train_calm(training_job const& job, train_options const& o);
int train_autoregressive(training_job const& job, train_options const& o);

}  // namespace calm::apps
