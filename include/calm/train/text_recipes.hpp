#pragma once
/// \file
/// How `calm train` trains on text: the split of the time between autoencoder and language model, and their recipes.
/// docs/configurations/train-text.md has the measurements behind the numbers.
/// \shows{apps/run/text_plan.cpp,reason_of_warmup}

#include <algorithm>
#include <optional>

#include "calm/train/recipe.hpp"

namespace calm {

/// What decides the recipes for a text.
struct text_setting {
    index_t K = 4;                 ///< tokens per patch; 1 for an autoregressive model
    bool is_generated = false;     ///< stories or another grammar, which has no unseen patches
    bool has_own_symbols = false;  ///< symbols of a generated source, not text
    double minutes = 0;            ///< of the whole run; 0 if steps limit it
};

inline constexpr double most_autoencoder_minutes = 4;      ///< enough for an autoencoder of text
inline constexpr index_t longest_autoencoder_warmup = 50;  ///< steps
inline constexpr index_t longest_text_warmup = 200;        ///< steps, of a language model

/// Minutes of the autoencoder, given those of both models: a quarter, at most 4.
constexpr double minutes_of_autoencoder(double minutes) {
    return std::min(most_autoencoder_minutes, minutes / 4);
}

/// Warm-up in steps, at most `longest`: a tenth of the steps or, if minutes limit the run, of the steps that one core
/// does in them.
inline index_t warmup_of_text(std::optional<index_t> steps, std::optional<double> minutes, index_t longest) {
    constexpr double per_minute = 50;
    double const tenth = steps ? static_cast<double>(*steps) / 10 : per_minute * minutes.value_or(0);
    return static_cast<index_t>(std::min(tenth, static_cast<double>(longest)));
}

namespace detail {

// At least `least` whole patches.
constexpr index_t in_patches(index_t tokens, index_t K, index_t least) {
    return std::max(tokens / K, least) * K;
}
// Stories, and runs of an hour or more, gain from longer sequences; the Markov chain needs no more than 64 tokens.
constexpr index_t sequence_of_text(text_setting const& text) {
    constexpr double long_run = 60;
    if (text.has_own_symbols) return 64;
    return text.is_generated || text.minutes >= long_run ? 256 : 128;
}

}  // namespace detail

/// Recipe of an autoencoder for text, without its length and warm-up.
inline autoencoder_recipe autoencoder_recipe_of_text(text_setting const& text) {
    autoencoder_recipe r;
    r.batch_tokens = detail::in_patches(2048, text.K, 1);  // larger steps would be too few
    r.learning_rate = 3e-3;
    r.schedule = learning_rate_schedule::cosine;
    r.objective.kl_weight = 0.02;  // the posterior stays predictable
    r.random_patches = text.is_generated ? 0 : 0.15;
    return r;
}

/// Tokens per sequence of a language model of text, in whole patches.
constexpr index_t block_of_text(text_setting const& text) {
    return detail::in_patches(detail::sequence_of_text(text), text.K, 2);
}
/// Sequences per step with so many tokens each: many small steps.
constexpr index_t sequences_of_text(index_t block_tokens) {
    return block_tokens >= 256 ? 8 : 16;
}

/// Recipe of a CALM for text, without a length and a warm-up. Few samples and targets are enough for the loss of a
/// small model; a head that drafts tokens needs fewer still, because most of its signal is their cross-entropy.
template <class Objective> calm_recipe<Objective> calm_recipe_of_text(text_setting const& text) {
    calm_recipe<Objective> r;
    r.block_tokens = block_of_text(text);
    r.sequences = sequences_of_text(detail::sequence_of_text(text));
    r.schedule = learning_rate_schedule::cosine;
    if constexpr (requires { r.objective.draft_weight; }) {
        r.objective.samples = 2;
        r.objective.targets = 4;
    } else if constexpr (requires { r.objective.targets; }) {
        r.objective.samples = 8;
        r.objective.targets = 32;
    }
    return r;
}

}  // namespace calm
