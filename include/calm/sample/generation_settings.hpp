#pragma once
/// \file
/// What decides a generated text, and its result; and how much a step of a batch of texts computes.
/// \shows{examples/13_saved_model.cpp,main}

#include <cstdint>
#include <limits>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/sample/token_sampler.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

/// Patches of a prompt that are computed at a time (chunked prefill): other texts continue between two parts. A
/// constant, because a text's last bits depend on it.
inline constexpr index_t prompt_part = 128;

/// Settings that decide the text, together with model and prompt. Rule is the sampler type of the model.
template <class Rule> struct settings_of_generation {
    Rule sampler = {};                ///< default for a CALM: adaptive, T = 1/2; for an autoregressive model: T = 1
    index_t max_tokens = 256;         ///< new tokens, exactly, unless EOS comes first
    bool pad_left = true;             ///< false: on the right, as in the published code
    std::uint64_t seed = 1;           ///< of all draws
    std::uint32_t prompt_number = 0;  ///< of the first prompt; decides the noise, wherever a prompt is in a batch
    index_t at_once = 16;             ///< texts generated at the same time; changes memory and speed
    std::int64_t round = 0;           ///< draws per text and round; 0: automatic. Changes speed
    std::vector<token_id> ends = {};  ///< each of these ids ends a text; empty: only the vocabulary's EOS does
};
using generation_settings = settings_of_generation<sampler>;              ///< for a CALM
using token_generation_settings = settings_of_generation<token_sampler>;  ///< for an autoregressive model

/// How much one step of a text_batch computes, so that no text waits long for another; by default without limits. No
/// text depends on it.
struct step_limits {
    index_t prompt_patches = std::numeric_limits<index_t>::max();  ///< stops after this many patches of prompts
    /// Draws per step on average, of the texts that take turns: those with more draws per patch than their share of
    /// this number.
    index_t draws = std::numeric_limits<index_t>::max();
};
/// For texts of several users: one part of a prompt, and with `tiny` about 50 ms of draws on one core.
inline constexpr step_limits limits_of_serving{prompt_part, 1024};

/// Result for one prompt.
struct generation_result {
    std::vector<token_id> tokens;  ///< new tokens, without the id that ends the text
    bool stopped_at_eos = false;   ///< at that id; false if it ended at max_tokens or on_tokens ended it
    index_t patches = 0;           ///< sampled
    index_t draws = 0;             ///< patches drawn from the head for them
    index_t capped = 0;            ///< patches at which the exact rule gave up
};

}  // namespace calm
