#pragma once
/// \file
/// Settings for evaluating a language model, which all ranks of an evaluation must share.
/// \shows{examples/13_saved_model.cpp,main}

#include <cstdint>
#include <string>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/ranks/detail/setting.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/sample/token_sampler.hpp"

namespace calm {

/// How text is cut, how much of it is scored, and with which samples. Rule is the sampler type of the model.
template <class Rule> struct settings_of_evaluation {
    index_t block_tokens = 256;        ///< P K; BrierLM depends on it
    index_t samples = 8;               ///< N, at least 2
    std::uint64_t seed = 1;            ///< of all noise
    index_t positions = 0;             ///< size of a random subset of positions to score; 0: all
    index_t batch = 8;                 ///< blocks computed at once; changes memory, not results
    Rule sampler = Rule::unchanged();  ///< of the samples: T = 1, the unchanged model
};
using evaluation_settings = settings_of_evaluation<sampler>;              ///< for a CALM
using token_evaluation_settings = settings_of_evaluation<token_sampler>;  ///< for an autoregressive model

namespace detail {

inline std::string rule_text(sampler const& s) {
    return std::string(s.name()) + " of " + std::to_string(s.n) + " + " + shortest(s.fraction) +
           " equal draws, at most " + std::to_string(s.max_draws) + ", noise " + shortest(s.noise_scale) + ", T " +
           shortest(s.T);
}
inline std::string rule_text(token_sampler const& s) {
    return "exact, T " + shortest(s.T) + ", top-k " + std::to_string(s.top_k) + ", top-p " + shortest(s.top_p);
}
// Settings, by name, in which ranks that evaluate together must agree.
template <class Rule> std::vector<setting> settings_of(settings_of_evaluation<Rule> const& s) {
    return {{"block", std::to_string(s.block_tokens)},
            {"samples", std::to_string(s.samples)},
            {"seed", std::to_string(s.seed)},
            {"positions", std::to_string(s.positions)},
            {"blocks at once", std::to_string(s.batch)},
            {"sampler", rule_text(s.sampler)}};
}

}  // namespace detail

}  // namespace calm
