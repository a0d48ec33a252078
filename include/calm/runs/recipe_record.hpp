#pragma once
/// \file
/// The settings that a run was started with, option by option, to compare a resumed run with them.
/// \shows{tests/runs/recipe_record_test.cpp,differences_are_a_table}

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/quoted.hpp"
#include "calm/train/detail/rank_settings.hpp"
#include "calm/train/recipe.hpp"

namespace calm {

/// One setting as text, e.g. {"learning-rate", "0.001"}.
struct recipe_entry {
    std::string option;  ///< name on the command line
    std::string value;   ///< numbers with enough digits to be read back exactly
    friend bool operator==(recipe_entry const&, recipe_entry const&) = default;
};
using recipe_record = std::vector<recipe_entry>;  ///< all settings, each option once

/// A setting that changed; the value is "-" in a run without the setting.
struct recipe_difference {
    std::string option;  ///< name on the command line
    std::string was;     ///< in the earlier run
    std::string now;     ///< in the later run
};

/// Value of an option, or nullptr.
inline std::string const* value_of(recipe_record const& record, std::string const& option) {
    auto const found =
        std::find_if(record.begin(), record.end(), [&](recipe_entry const& e) { return e.option == option; });
    return found == record.end() ? nullptr : &found->value;
}

/// Adds the settings of a recipe that affect the weights. The length of the run counts only if its learning rate
/// decays; intervals and measurements do not count.
inline void record(recipe_record& to, training_recipe const& r) {
    bool const cosine = r.schedule == learning_rate_schedule::cosine;
    auto const affects_weights = [&](std::string const& option) {
        if (option == "steps") return cosine && r.steps > 0;
        if (option == "seconds") return cosine && r.steps == 0;
        if (option == "muon") return r.optimizer.muon != 0;
        if (option == "rounding") return r.rounding == weight_rounding::stochastic;
        auto const others = {"evaluate-every", "save-every", "steps per report", "first phase", "skip-nonfinite"};
        return std::find(others.begin(), others.end(), option) == others.end();
    };
    for (auto& [option, value] : detail::settings_of(r))
        if (affects_weights(option)) to.push_back({std::move(option), std::move(value)});
}

/// The settings of an autoencoder's recipe, and the seed.
inline recipe_record record_of(autoencoder_recipe const& r, std::uint64_t seed) {
    recipe_record all{{"seed", std::to_string(seed)},
                      {"batch", std::to_string(r.batch_tokens)},
                      {"kl-weight", shortest(r.objective.kl_weight)},
                      {"kl-clamp", shortest(r.objective.kl_clamp)},
                      {"dropout", shortest(r.objective.dropout)},
                      {"random-patches", shortest(r.random_patches)}};
    record(all, r);
    return all;
}
/// The settings of a CALM's recipe with all fields of the head's objective, and the seed.
inline recipe_record record_of(calm_recipe<any_objective> const& r, std::uint64_t seed) {
    recipe_record all{{"seed", std::to_string(seed)},
                      {"batch", std::to_string(r.sequences)},
                      {"block", std::to_string(r.block_tokens)}};
    for (auto const& number : r.objective.fields)
        all.push_back({"head-" + std::string(number.field.option), text_of(number)});
    record(all, r);
    return all;
}

/// The settings of an autoregressive model's recipe, and the seed. With two phases the length of the run counts: it
/// decides where the second begins.
inline recipe_record record_of(autoregressive_recipe const& r, std::uint64_t seed) {
    recipe_record all{{"seed", std::to_string(seed)},
                      {"batch", std::to_string(r.sequences)},
                      {"block", std::to_string(r.block_tokens)}};
    if (r.level.first_phase() > 0) {
        all.push_back({"patch-level", r.level.text()});
        if (r.schedule != learning_rate_schedule::cosine) {
            all.push_back({"steps", std::to_string(r.steps)});
            all.push_back({"seconds", shortest(r.seconds)});
        }
    }
    record(all, r);
    return all;
}

/// The settings for a known head.
template <head_objective Objective> recipe_record record_of(calm_recipe<Objective> const& r, std::uint64_t seed) {
    return record_of(calm_recipe<any_objective>{r, r.sequences, r.block_tokens, r.objective}, seed);
}

/// Whether both have a fingerprint of their text, "text", and it is equal; then its name, "data", may differ.
inline bool same_text(recipe_record const& a, recipe_record const& b) {
    auto const* const one = value_of(a, "text");
    auto const* const other = value_of(b, "text");
    return one != nullptr && other != nullptr && *one == *other;
}

/// The settings in which two runs differ, in the order of the earlier run, then the settings that only the later run
/// has. A renamed text does not count as a difference.
inline std::vector<recipe_difference> differences(recipe_record const& was, recipe_record const& now) {
    std::vector<recipe_difference> all;
    bool const renamed = same_text(was, now);
    for (auto const& [option, value] : was) {
        if (renamed && option == "data") continue;
        auto const* const present = value_of(now, option);
        if (present == nullptr || *present != value) all.push_back({option, value, present ? *present : "-"});
    }
    for (auto const& [option, value] : now)
        if (value_of(was, option) == nullptr && !(renamed && option == "data")) all.push_back({option, "-", value});
    return all;
}

/// Whether scores on held-out text are comparable: the same text, the same held-out part, the same blocks.
inline bool same_measure(recipe_record const& a, recipe_record const& b) {
    auto const all = differences(a, b);
    return std::none_of(all.begin(), all.end(), [](recipe_difference const& d) {
        auto const options = {"data", "data-seed", "holdout", "mode", "text", "tokenizer", "block"};
        return std::find(options.begin(), options.end(), d.option) != options.end();
    });
}

namespace detail {

// A decimal fraction with six digits; anything else unchanged.
inline std::string rounded(std::string const& value) {
    double number = 0;
    auto const* const last = value.data() + value.size();
    auto const [end, code] = std::from_chars(value.data(), last, number);
    return code == std::errc{} && end == last && value.find('.') != std::string::npos ? six_digits(number) : value;
}

}  // namespace detail

/// A table for people: option, was, now, one line each, without a final line break. Unprintable characters are escaped,
/// and fractions have six digits where these differ.
inline std::string to_table(std::vector<recipe_difference> differences) {
    constexpr std::size_t widest = 200;
    for (auto& d : differences) {
        if (auto was = detail::rounded(d.was), now = detail::rounded(d.now); was != now) {
            d.was = std::move(was);
            d.now = std::move(now);
        }
        for (auto* const cell : {&d.option, &d.was, &d.now}) *cell = printable_line(*cell, widest);
    }
    recipe_difference const head{"option", "was", "now"};
    std::size_t option = head.option.size();
    std::size_t was = head.was.size();
    for (auto const& d : differences) option = std::max(option, d.option.size()), was = std::max(was, d.was.size());
    auto const line = [&](recipe_difference const& d) {
        return "  " + d.option + std::string(option + 2 - d.option.size(), ' ') + d.was +
               std::string(was + 2 - d.was.size(), ' ') + d.now;
    };
    std::string text = line(head);
    for (auto const& d : differences) text += "\n" + line(d);
    return text;
}

}  // namespace calm
