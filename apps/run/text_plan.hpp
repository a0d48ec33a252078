#pragma once
// How `train text` derives a plan from the size of the text and the minutes. docs/configurations.md has the
// measurements behind it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "command/text_choices.hpp"
#include "registry.hpp"

namespace calm::apps {

// Properties of the text known before training.
struct text_facts {
    std::uint64_t bytes = 0;       // to train on; all bytes if no holdout is given
    std::uint64_t documents = 0;   // likewise
    std::uint64_t tenth = 0;       // bytes of the documents that 10:9 would hold out, if no holdout is given
    bool is_generated = false;     // no files among the sources: they have their own held-out split
    bool has_own_symbols = false;  // markov:N
};

struct text_plan {
    // The given choices completed by the planned ones; of minutes and steps, only the limit of each stage. Markov
    // symbols have no vocabulary choice.
    text_choices choices;
    recipe_record why;  // reason by option

    // The language model's part of the minutes, if they limit it; all of them without an autoencoder.
    [[nodiscard]] std::optional<double> minutes_of_model() const {
        if (choices.steps || !choices.minutes) return std::nullopt;
        return *choices.minutes - choices.autoencoder_minutes.value_or(0);
    }
};

// Conflicts of choices with a configuration, one sentence each: numbers that its head lacks, and autoencoder choices
// for an autoregressive model.
std::vector<std::string> choice_problems(entry const& one, text_choices const& given);

// Throws errc::usage if the choices exclude each other for any text, or have choice_problems() with the given
// configuration.
void require_possible(text_choices const& given, std::span<entry const> compiled);

// Those of `compiled` to choose from for a device: the ones compiled for it. All, if the device is auto or none is
// compiled for it.
std::vector<entry> configurations_for(device_choice const& device, std::span<entry const> compiled);

// Plans for a text and keeps the given choices. An autoregressive model is planned only if its configuration is given.
// Throws errc::usage as require_possible() does, and errc::config if no CALM configuration or not the given
// configuration is compiled.
text_plan plan_of_text(text_facts const& text, text_choices const& given, std::span<entry const> compiled);

// One line per option with value and reason; all cells are printable.
std::string to_table(text_plan const& plan);

}  // namespace calm::apps
