#pragma once
// How `train text` chooses: from the size of a text and the minutes to a plan. docs/configurations.md has the
// measurements behind it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "command/text_choices.hpp"
#include "registry.hpp"

namespace calm::apps {

// What is known of a text before anything is learned from it.
struct text_facts {
    std::uint64_t bytes = 0;       // to train on; with no holdout given, all
    std::uint64_t documents = 0;   // the same
    std::uint64_t tenth = 0;       // bytes of the documents whose number is 9 modulo 10, where no holdout is given
    bool is_generated = false;     // no file is among the sources: they hold out text of their own
    bool has_own_symbols = false;  // markov:N
};

struct text_plan {
    // Those given, and all others; of minutes and steps of a stage what limits it. Symbols have no vocabulary to
    // choose.
    text_choices choices;
    recipe_record why;  // a reason by option

    // What the language model has of the minutes, where they limit it: all, where it has no autoencoder.
    [[nodiscard]] std::optional<double> minutes_of_model() const {
        if (choices.steps || !choices.minutes) return std::nullopt;
        return *choices.minutes - choices.autoencoder_minutes.value_or(0);
    }
};

// What stands against choices for a configuration: numbers that its head does not have, choices for an autoencoder that
// an autoregressive model does not have. A sentence each.
std::vector<std::string> choice_problems(entry const& one, text_choices const& given);

// Throws errc::usage where choices exclude each other, whatever the text is, or the configuration that is given has one
// of the choice_problems.
void require_possible(text_choices const& given, std::span<entry const> compiled);

// The plan for a text, with what is given as it is given. An autoregressive model is planned only where its
// configuration is given. Throws errc::usage as require_possible, errc::config where no configuration of a CALM is
// compiled, or not the one given.
text_plan plan_of_text(text_facts const& text, text_choices const& given, std::span<entry const> compiled);

// Option, value, why, a line each; what they hold is printable, whatever file it was read from.
std::string to_table(text_plan const& plan);

}  // namespace calm::apps
