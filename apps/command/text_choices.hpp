#pragma once
// The decisions of `train text`. Each is an option, a row of the printed table and a value of plan.json; each_number()
// lists most of them.

#include <limits>
#include <map>
#include <optional>
#include <string>

#include "calm/model/detail/limits.hpp"
#include "calm/model/head.hpp"
#include "calm/runs/recipe_record.hpp"
#include "calm/train/recipe.hpp"
#include "command/heading.hpp"

namespace calm::apps {

// Limits of options that several commands share.
namespace ends {
inline constexpr double above_zero = std::numeric_limits<double>::min();
inline constexpr double minutes = 60.0 * 24 * 365 * 10;  // ten years
inline constexpr double learning_rate = 10;              // above it weight decay alone would flip the sign of weights
inline constexpr double muon = 1e6;                      // times the learning rate
inline constexpr index_t least_vocabulary = 259;         // 256 bytes and 3 special tokens
}  // namespace ends

// --head-OPTION: values for fields of a head, empty if not given.
using head_numbers = std::map<std::string, std::optional<double>>;
// Replaces the values that were given.
void take(field_values& values, head_numbers const& numbers);

// Members are empty if not chosen.
struct text_choices {
    std::string configuration;
    std::string holdout;  // "m:r"
    std::optional<index_t> vocabulary;
    std::optional<double> minutes;  // of all models together
    std::optional<double> autoencoder_minutes;
    std::optional<index_t> autoencoder_steps;
    std::optional<index_t> autoencoder_batch;  // tokens
    std::optional<double> autoencoder_learning_rate;
    std::optional<index_t> autoencoder_warmup;
    std::optional<double> kl_weight;
    std::optional<double> random_patches;
    std::optional<index_t> steps;  // from here on for the language model
    std::optional<index_t> batch;  // sequences
    std::optional<index_t> block;  // tokens
    std::optional<double> learning_rate;
    std::optional<double> muon;
    std::optional<index_t> warmup;
    std::optional<learning_rate_schedule> schedule;  // of both models
    head_numbers head;                               // for the objective
};

// A numeric choice: its option and that option's type, place in the help, help and limits.
template <class Number> struct number_choice {
    char const* option;  // without its dashes
    char const* type;
    heading under;
    seldom used;
    char const* help;
    Number least;
    Number most;
    bool of_autoencoder = false;  // does not apply to an autoregressive model
};

// Calls f(number_choice, member) for every numeric choice except numbers of the head, in the order of the table.
template <class Choices, class F> void each_number(Choices& c, F const& f) {
    using real = number_choice<double>;
    using whole = number_choice<index_t>;
    f(whole{"vocabulary", "V", heading::model, seldom::no,
            "number of tokens, including the 256 bytes and 3 special tokens", ends::least_vocabulary,
            limits::vocabulary},
      c.vocabulary);
    f(real{"minutes", "X", heading::common, seldom::no, "training minutes of autoencoder and language model together",
           ends::above_zero, ends::minutes},
      c.minutes);
    f(real{"autoencoder-minutes", "X", heading::common, seldom::no, "how many of --minutes train the autoencoder",
           ends::above_zero, ends::minutes, true},
      c.autoencoder_minutes);
    f(whole{"autoencoder-steps", "N", heading::common, seldom::yes, "steps of the autoencoder, instead of its minutes",
            1, limits::steps, true},
      c.autoencoder_steps);
    f(whole{"autoencoder-batch", "N", heading::optimizer, seldom::yes, "tokens per step of the autoencoder", 1,
            limits::step_tokens, true},
      c.autoencoder_batch);
    f(real{"autoencoder-learning-rate", "X", heading::optimizer, seldom::yes, "peak learning rate of the autoencoder",
           ends::above_zero, ends::learning_rate, true},
      c.autoencoder_learning_rate);
    f(whole{"autoencoder-warmup", "N", heading::optimizer, seldom::yes,
            "warm-up steps of the autoencoder (a tenth of --autoencoder-steps, or 50 per minute; at most 50)", 0,
            limits::steps, true},
      c.autoencoder_warmup);
    f(real{"kl-weight", "X", heading::optimizer, seldom::yes, "weight of the KL divergence in the autoencoder's loss",
           0, limits::weight, true},
      c.kl_weight);
    f(real{"random-patches", "X", heading::optimizer, seldom::no,
           "share of the autoencoder's patches that are random tokens", 0, 1, true},
      c.random_patches);
    f(whole{"steps", "N", heading::common, seldom::no, "steps of the language model, instead of its minutes", 1,
            limits::steps},
      c.steps);
    f(whole{"batch", "N", heading::optimizer, seldom::no, "sequences per step of the language model", 1,
            limits::step_tokens},
      c.batch);
    f(whole{"block", "N", heading::data, seldom::no, "tokens per sequence", 1, limits::block_tokens}, c.block);
    f(real{"learning-rate", "X", heading::optimizer, seldom::no, "peak learning rate of the language model",
           ends::above_zero, ends::learning_rate},
      c.learning_rate);
    f(real{"muon", "X", heading::optimizer, seldom::yes,
           "use Muon for hidden matrices, with learning rate X * --learning-rate (0: AdamW for all)", 0, ends::muon},
      c.muon);
    f(whole{"warmup", "N", heading::optimizer, seldom::yes,
            "warm-up steps of the language model (a tenth of --steps, or 50 per minute; at most 200)", 0,
            limits::steps},
      c.warmup);
}

// The choices as option names and values.
recipe_record record_of(text_choices const& choices);
// The choices of a record. Throws errc::model_file for an unknown option or an invalid value; `path` names the record
// in messages.
text_choices choices_of(recipe_record const& record, std::string const& path);

}  // namespace calm::apps
