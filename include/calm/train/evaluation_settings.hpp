#pragma once
// How a language model is evaluated.

#include <cstdint>

#include "calm/sample/sampler.hpp"
#include "calm/sample/token_sampler.hpp"

namespace calm {

// How a text is cut, how much of it is scored, and with which samples; Rule is how a model's next tokens are chosen.
template <class Rule> struct settings_of_evaluation {
    index_t block_tokens = 256;        // P K; BrierLM depends on it
    index_t samples = 8;               // N, at least 2
    std::uint64_t seed = 1;            // of all noise
    index_t positions = 0;             // score a random subset of so many positions; 0: all
    index_t batch = 8;                 // blocks computed at once: memory, not results
    Rule sampler = Rule::unchanged();  // of the samples: T = 1, the model as it is
};
using evaluation_settings = settings_of_evaluation<sampler>;              // of a CALM
using token_evaluation_settings = settings_of_evaluation<token_sampler>;  // of an autoregressive model

}  // namespace calm
