#pragma once
// `train text` trains a tokenizer, an autoencoder and a CALM in one directory. For an autoregressive model: a tokenizer
// and the model.
//
//   plan.json          the request and the plan (text_record.hpp)
//   tokenizer.model    not for markov:N, whose symbols are its tokens
//   autoencoder/       a run, as of train autoencoder; not for an autoregressive model
//   model/             a run, as of train calm or train ar
//   text.lock          held by the training process

#include <string>

#include "command/options.hpp"

namespace calm::apps {

// Whether such a run could start or resume at a path: the path is free, an empty directory, or such a run.
bool can_hold_text_run(std::string const& path);

// Plans and trains, or resumes with the existing plan. Returns the exit status of the stage that ended the run: 0, or
// 128 + a signal. Throws errc::usage if choices differ from the existing plan's without --override, and the errors of
// the stages.
int train_text(text_options const& o);

}  // namespace calm::apps
