#include "run/text_plan.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "calm/base/quoted.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/train/text_recipes.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

// Configurations in order of preference: the first compiled one is chosen.
struct preferred_configuration {
    std::string_view name;
    double learning_rate;  // of the language model
    std::uint64_t bytes;   // least text, from a file, for tokens of about two bytes
    double minutes;        // least time for them
    char const* why;
};
constexpr preferred_configuration preferences[] = {
    {"tiny-drafted", 2e-3, 500'000, 5, "drafts of whole tokens: learns context soonest"},
    {"tiny-flow", 2e-3, 2'000'000, 20, "the flow head learns fastest of those compiled"},
    {"tiny", 2e-3, 2'000'000, 20, "the smallest; tiny-drafted would learn faster, but is not compiled"},
};

// Vocabularies for large files: the first row whose bytes and minutes are both reached.
struct vocabulary_row {
    std::uint64_t bytes;
    double minutes;
    index_t vocabulary;
    char const* why;
};
constexpr vocabulary_row vocabularies[] = {
    {200'000'000, 600, 4096, "much text and many hours: long tokens"},
    {20'000'000, 120, 1024, "20 MB and two hours: longer tokens"},
};
constexpr char const* short_tokens = "tokens of about two bytes: the head learns them in this time";
constexpr char const* same_tokens = "tokens of about two bytes, as for a CALM of this text";
constexpr char const* no_tokens = "bytes: too little text or time for longer tokens";

constexpr std::uint64_t words_of_stories = 200'000;  // bytes from which most words become tokens
constexpr std::uint64_t least_heldout = 16'384;      // bytes needed for a useful measurement
constexpr char const* tenth = "10:9";
constexpr double default_minutes = 20;  // if neither minutes nor steps are given

preferred_configuration const* preference_for(std::string_view name) {
    auto const* const found =
        std::find_if(std::begin(preferences), std::end(preferences), [&](auto const& row) { return row.name == name; });
    return found == std::end(preferences) ? nullptr : found;
}

entry const* entry_named(std::span<entry const> compiled, std::string_view name) {
    if (name.find(':') != std::string_view::npos) return &configuration_named(std::string(name));  // on demand
    auto const found =
        std::find_if(compiled.begin(), compiled.end(), [&](entry const& one) { return one.name == name; });
    return found == compiled.end() ? nullptr : &*found;
}

// The first CALM configuration by preference.
entry const& chosen_configuration(std::span<entry const> compiled) {
    for (auto const& row : preferences)
        if (auto const* const one = entry_named(compiled, row.name); one != nullptr && !one->is_autoregressive())
            return *one;
    auto const any =
        std::find_if(compiled.begin(), compiled.end(), [](entry const& one) { return !one.is_autoregressive(); });
    if (any == compiled.end())
        throw error(errc::config, "no configuration of a CALM is compiled into this program: compile one, "
                                  "cmake --preset release -DCALM_CONFIGS=\"tiny\"");
    return *any;
}

// The rule of warmup_of_text for a stage.
std::string reason_of_warmup(std::optional<index_t> steps, index_t longest) {
    auto const most = ", at most " + std::to_string(longest);
    if (steps) return "a tenth of the steps" + most;
    auto const per_minute = warmup_of_text(std::nullopt, 1, longest_text_warmup);
    return std::to_string(per_minute) + " steps per minute" + most +
           ": a tenth of a fast core's steps, a third of a slow one's";
}

class planner {
public:
    planner(text_facts const& text, text_choices const& given, std::span<entry const> compiled) :
        text_(text), entry_(given.configuration.empty() ? &chosen_configuration(compiled)
                                                        : entry_named(compiled, given.configuration)) {
        plan_.choices = given;
        if (entry_ == nullptr)
            throw error(errc::config,
                        "the configuration '" + given.configuration + "' is not compiled into this program");
        has_length_ = given.minutes || given.steps || given.autoencoder_minutes || given.autoencoder_steps;
        if (!has_length_) plan_.choices.minutes = default_minutes;
    }

    text_plan planned() {
        choose_configuration();
        choose_text();
        choose_length();
        if (!entry_->is_autoregressive()) choose_autoencoder();
        choose_model();
        choose("schedule", c().schedule, learning_rate_schedule::cosine,
               "each learning rate falls to a tenth at the end of its stage");
        for (auto const& [option, value] : c().head)
            if (value) because("head-" + option, as_given);
        return std::move(plan_);
    }

private:
    static constexpr char const* as_given = "as given";

    text_choices& c() { return plan_.choices; }
    void because(std::string const& option, std::string const& why) { plan_.why.push_back({option, why}); }
    template <class Value>
    void choose(std::string const& option, std::optional<Value>& place, Value value, std::string const& why) {
        because(option, place ? as_given : why);
        if (!place) place = value;
    }
    [[nodiscard]] index_t patch_size() const {
        return entry_->is_autoregressive() ? 1 : entry_->calm().autoencoder.patch_size;
    }
    [[nodiscard]] preferred_configuration const* preference() const { return preference_for(entry_->name); }
    // The language model's default recipe.
    [[nodiscard]] training_recipe const& own() const {
        if (entry_->is_autoregressive()) return entry_->defaults.autoregressive;
        return entry_->defaults.calm;
    }
    [[nodiscard]] bool is_real() const { return !text_.is_generated; }
    [[nodiscard]] text_setting setting() const {
        return {.K = patch_size(),
                .is_generated = text_.is_generated,
                .has_own_symbols = text_.has_own_symbols,
                .minutes = plan_.choices.minutes.value_or(0)};
    }

    void choose_configuration() {
        std::string facts = "one token at a time by a softmax, without an autoencoder";
        if (!entry_->is_autoregressive())
            facts = formatted("K %lld, latent size %lld", static_cast<long long>(patch_size()),
                              static_cast<long long>(entry_->calm().autoencoder.latent_size));
        auto const* const reason = preference();
        because("config",
                (c().configuration.empty() ? reason != nullptr ? reason->why : "the first compiled one" : as_given) +
                    ("; " + facts));
        c().configuration = entry_->name;
    }

    void choose_text() {
        if (!c().holdout.empty()) {
            because("holdout", as_given);
        } else if (is_real() && text_.tenth >= least_heldout) {
            c().holdout = tenth;
            because("holdout", "every tenth document is held out, to measure what is learned");
            text_.bytes -= text_.tenth;
        }
        double const minutes = c().minutes.value_or(0);
        auto const is_enough = [&](auto const& row) { return text_.bytes >= row.bytes && minutes >= row.minutes; };
        auto const row = std::find_if(std::begin(vocabularies), std::end(vocabularies), is_enough);
        if (text_.has_own_symbols) return;  // they are its tokens
        if (!is_real() && text_.bytes >= words_of_stories)
            choose<index_t>("vocabulary", c().vocabulary, 512, "stories use few words: most become one token");
        else if (row != std::end(vocabularies))
            choose<index_t>("vocabulary", c().vocabulary, row->vocabulary, row->why);
        else if (entry_->is_autoregressive() && is_enough(preferences[0]))
            choose<index_t>("vocabulary", c().vocabulary, 512, same_tokens);
        else if (preference() != nullptr && is_enough(*preference()))
            choose<index_t>("vocabulary", c().vocabulary, 512, short_tokens);
        else
            choose<index_t>("vocabulary", c().vocabulary, tokenizer::byte_vocabulary, no_tokens);
    }

    void choose_length() {
        if (c().minutes) because("minutes", has_length_ ? as_given : "the default");
        if (entry_->is_autoregressive()) {
            // the language model gets all minutes
        } else if (c().autoencoder_steps) {
            if (c().autoencoder_minutes) because("autoencoder-minutes", as_given);
            because("autoencoder-steps", as_given);
        } else {
            double const share = minutes_of_autoencoder(c().minutes.value_or(0));
            choose("autoencoder-minutes", c().autoencoder_minutes, share,
                   share < most_autoencoder_minutes ? "a quarter of the minutes; the language model gets the rest"
                                                    : "enough at these sizes; the language model gets the rest");
        }
        if (c().steps) because("steps", as_given);
    }

    void choose_autoencoder() {
        bool const known = preference() != nullptr;
        auto const usual = autoencoder_recipe_of_text(setting());
        choose("autoencoder-batch", c().autoencoder_batch, usual.batch_tokens,
               "tokens per step: larger steps would be too few");
        choose("autoencoder-learning-rate", c().autoencoder_learning_rate,
               known ? usual.learning_rate : entry_->defaults.autoencoder.learning_rate,
               known ? "as on WikiText and stories" : "the configuration's own");
        choose("autoencoder-warmup", c().autoencoder_warmup,
               warmup_of_text(c().autoencoder_steps, c().autoencoder_minutes, longest_autoencoder_warmup),
               reason_of_warmup(c().autoencoder_steps, longest_autoencoder_warmup));
        choose("kl-weight", c().kl_weight, usual.objective.kl_weight,
               "as on WikiText: the posterior stays predictable");
        choose("random-patches", c().random_patches, usual.random_patches,
               is_real() ? "real text has patches that are not in the training text"
                         : "generated text has no new patches");
    }

    void choose_model() {
        auto const usual = calm_recipe_of_text<any_objective>(setting());
        choose("batch", c().batch, c().block ? sequences_of_text(*c().block) : usual.sequences,
               "sequences per step: many small steps");
        choose("block", c().block, usual.block_tokens,
               text_.has_own_symbols ? "tokens per sequence: the Markov chain needs no more"
               : usual.sequences > 8 ? "tokens per sequence, as on WikiText"
                                     : "tokens per sequence: stories and long runs gain from more");
        auto const* const known = preference();
        choose("learning-rate", c().learning_rate, known == nullptr ? own().learning_rate : known->learning_rate,
               known == nullptr ? "the configuration's own" : "as measured with this head");
        choose("muon", c().muon, own().optimizer.muon,
               "times the learning rate, for hidden matrices; the configuration's own");
        choose("warmup", c().warmup, warmup_of_text(c().steps, plan_.minutes_of_model(), longest_text_warmup),
               reason_of_warmup(c().steps, longest_text_warmup));
    }

    text_facts text_;
    entry const* entry_;
    text_plan plan_;
    bool has_length_ = true;  // minutes or steps are given
};

}  // namespace

std::vector<std::string> choice_problems(entry const& one, text_choices const& given) {
    auto problems = head_problems(one, given.head);
    if (!one.is_autoregressive()) return problems;
    each_number(given, [&](auto const& choice, auto const& place) {
        if (place && choice.of_autoencoder)
            problems.push_back(std::string("--") + choice.option + ": " + one.name +
                               ", an autoregressive model, has no autoencoder: leave it out");
    });
    return problems;
}

void require_possible(text_choices const& given, std::span<entry const> compiled) {
    auto const refuse = [](std::string const& sentence) { throw error(errc::usage, sentence); };
    auto const* const one = entry_named(compiled, given.configuration);
    if (one != nullptr)
        if (auto const problems = choice_problems(*one, given); !problems.empty()) refuse(problems.front());
    bool const needs_autoencoder = one == nullptr || !one->is_autoregressive();
    bool const no_length = !given.minutes && !given.steps && !given.autoencoder_steps && !given.autoencoder_minutes;
    bool const ends = given.steps && (!needs_autoencoder || given.autoencoder_steps || given.autoencoder_minutes);
    if (!given.minutes && !ends && !no_length)
        refuse(needs_autoencoder ? "--minutes is needed, or --steps and --autoencoder-steps instead of it"
                                 : "--minutes is needed, or --steps instead of it");
    if (given.minutes && given.autoencoder_minutes && *given.autoencoder_minutes >= *given.minutes)
        refuse(sentence("--autoencoder-minutes: expected fewer than the ", six_digits(*given.minutes),
                        " minutes of both models, found ", six_digits(*given.autoencoder_minutes)));
    if (given.schedule == learning_rate_schedule::constant) return;
    for (auto const& [steps, warmup, prefix] :
         {std::tuple(given.steps, given.warmup, ""),
          std::tuple(given.autoencoder_steps, given.autoencoder_warmup, "autoencoder-")})
        if (steps && warmup && *steps <= *warmup)
            refuse(sentence("--", prefix, "warmup: expected fewer steps than the ", *steps, " of --", prefix,
                            "steps, found ", *warmup));
}

std::vector<entry> configurations_for(device_choice const& device, std::span<entry const> compiled) {
    std::vector<entry> some;
    std::copy_if(compiled.begin(), compiled.end(), std::back_inserter(some),
                 [&](entry const& one) { return device.name == "auto" || one.is_compiled_for(device.name); });
    return some.empty() ? std::vector<entry>(compiled.begin(), compiled.end()) : some;
}

text_plan plan_of_text(text_facts const& text, text_choices const& given, std::span<entry const> compiled) {
    require_possible(given, compiled);
    auto plan = planner(text, given, compiled).planned();
    auto const& one = *entry_named(compiled, plan.choices.configuration);  // given or chosen
    if (auto const problems = choice_problems(one, given); !problems.empty())
        throw error(errc::usage, problems.front());
    return plan;
}

std::string to_table(text_plan const& plan) {
    constexpr std::size_t widest = 200;
    auto values = record_of(plan.choices);
    std::size_t option = 0, value = 0;
    for (auto& row : values) {
        row.value = printable_line(row.value, widest);
        option = std::max(option, row.option.size());
        value = std::max(value, row.value.size());
    }
    std::string text;
    for (auto const& row : values) {
        auto const* const why = calm::value_of(plan.why, row.option);
        text += "  " + row.option + std::string(option + 2 - row.option.size(), ' ') + row.value +
                std::string(value + 2 - row.value.size(), ' ') + (why != nullptr ? printable_line(*why, widest) : "") +
                "\n";
    }
    return text;
}

}  // namespace calm::apps
