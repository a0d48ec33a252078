#pragma once
// Settings for evaluating a language model.

#include <cstdint>

#include "calm/sample/sampler.hpp"
#include "calm/sample/token_sampler.hpp"

namespace calm {

// How text is cut, how much of it is scored, and with which samples. Rule is the sampler type of the model.
template <class Rule> struct settings_of_evaluation {
    index_t block_tokens = 256;        // P K; BrierLM depends on it
    index_t samples = 8;               // N, at least 2
    std::uint64_t seed = 1;            // of all noise
    index_t positions = 0;             // size of a random subset of positions to score; 0: all
    index_t batch = 8;                 // blocks computed at once; changes memory, not results
    Rule sampler = Rule::unchanged();  // of the samples: T = 1, the unchanged model
};
using evaluation_settings = settings_of_evaluation<sampler>;              // for a CALM
using token_evaluation_settings = settings_of_evaluation<token_sampler>;  // for an autoregressive model

}  // namespace calm
