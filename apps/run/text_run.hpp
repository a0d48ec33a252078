#pragma once
// `train text`: a vocabulary, an autoencoder and a CALM on it, one after the other in one directory. Of an
// autoregressive model: a vocabulary and the model.
//
//   plan.json          what was asked and what is planned (text_record.hpp)
//   tokenizer.model    none for markov:N, whose symbols are its tokens
//   autoencoder/       a run, as train autoencoder leaves it; none of an autoregressive model
//   model/             a run, as train calm or train ar leaves it
//   text.lock          held by the process that trains

#include <string>

#include "command/options.hpp"

namespace calm::apps {

// Whether such a run could begin or go on at a path: nothing is there, or an empty directory, or such a run.
bool can_hold_text_run(std::string const& path);

// Plans and trains, or goes on with the plan that is there. The exit status is that of the stage that ended it: 0, or
// 128 + a signal. Throws errc::usage for other choices than those of the plan that is there, unless they are to be
// taken, and what the stages throw.
int train_text(text_options const& o);

}  // namespace calm::apps
