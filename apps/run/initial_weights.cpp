#include "run/initial_weights.hpp"

#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "program.hpp"
#include "run/rank_agreement.hpp"
#include "text/generation.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

namespace {

void require_kind(stored_model const& init, model_kind kind) {
    auto const found = init.description.kind;
    if (found == kind) return;
    throw error(errc::config, init.directory, "",
                sentence("--init: expected ", name_of(kind), ", found ", name_of(found), ": use train ",
                         found == model_kind::autoregressive ? "ar"
                         : found == model_kind::calm         ? "calm"
                                                             : "autoencoder"));
}

void require_sizes(entry const& one, stored_model const& init) {
    auto const lines = one.is_autoregressive()                     ? differences(one.autoregressive(), init)
                       : init.description.kind == model_kind::calm ? differences(one.calm(), init)
                                                                   : differences(one.calm().autoencoder, init);
    if (!lines.empty())
        throw error(errc::config, init.directory, "",
                    "--init: the model does not match the configuration " + one.name + ": " + joined(lines, "; ") +
                        ". Leave --config and --set out to train with the model's sizes");
}

// Whether a tokenizer is that of a published model, once it is fitted to the model's table.
bool is_published_as(tokenizer const& given, tokenizer const& own) {
    auto const rows = own.vocabulary_size();
    return given.fits(rows) && given.published(rows, own.specials().bos_first).fingerprint() == own.fingerprint();
}

[[noreturn]] void refuse_another_tokenizer(stored_model const& init, std::string const& expected,
                                           std::string const& found, std::string const& remedy) {
    throw error(errc::tokenizer, init.directory, "",
                "--init: expected a model of the tokenizer with fingerprint " + expected + ", found " + found + "; " +
                    remedy);
}

constexpr char const* leave_tokenizer_out = "leave --tokenizer out to train with the model's own";

}  // namespace

configuration_and_init configuration_to_train(train_options const& o, model_kind kind) {
    auto const* const named = o.configuration.empty()              ? nullptr
                              : kind == model_kind::autoregressive ? &autoregressive_named(o.configuration)
                                                                   : &calm_named(o.configuration);
    if (o.init.empty()) return {*named, std::nullopt};
    entry const* chosen = named;
    stored_model init;
    agree([&] {
        init = opened_model(o.init);
        require_kind(init, kind);
        if (named != nullptr)
            require_sizes(*named, init);
        else
            chosen = &configuration_of(init);
        if (auto const problems = head_problems(*chosen, o.head); !problems.empty())
            throw error(errc::usage, problems.front());
        return std::vector<setting>();
    });
    return {*chosen, std::move(init)};
}

autoregressive_recipe recipe_for_published() {
    autoregressive_recipe r;
    r.steps = 300;
    r.warmup = 30;
    r.learning_rate = 1e-4;
    r.optimizer.muon = 0;
    return r;
}

recipes defaults_of(entry const& one, std::optional<stored_model> const& init) {
    auto all = one.defaults;
    if (init && has_published_tokenizer(*init)) all.autoregressive = recipe_for_published();
    return all;
}

recipes defaults_of(train_options const& o) {
    if (o.configuration.empty()) {
        auto const init = read_model_description(o.init);
        return defaults_of(configuration_of(init), init);
    }
    auto const found = o.init.empty() ? std::nullopt : description_in(o.init);
    auto const& one = configuration_named(o.configuration);
    return found ? defaults_of(one, stored_model{.directory = o.init, .description = *found})
                 : defaults_of(one, std::optional<stored_model>());
}

void require_tokenizer_of(stored_model const& init, tokenizer const& tokenizer, std::string const& remedy) {
    if (!describes_tokenizer(init)) return;
    if (auto const& found = init.description.calm->tokenizer->fingerprint; found != tokenizer.fingerprint())
        refuse_another_tokenizer(init, tokenizer.fingerprint(), found, remedy);
}

chosen_tokenizer choose_tokenizer(train_options const& o, std::optional<stored_model> const& init) {
    auto const given = [&] { return tokenizer_named(o.tokenizer, o.pattern); };
    if (!init || (!o.tokenizer.empty() && !has_published_tokenizer(*init))) {
        auto tokens = given();
        if (init) require_tokenizer_of(*init, tokens, leave_tokenizer_out);
        model_files files{{tokens.file_name(), tokenizer_bytes(o.tokenizer)}};
        return {std::move(tokens), std::move(files), std::nullopt};
    }
    auto stored = *init;
    if (o.tokenizer.empty() || !describes_tokenizer(stored)) stored.pattern = o.pattern;
    auto const own = load_tokenizer(stored);
    if (!o.tokenizer.empty())
        if (auto const other = given(); !is_published_as(other, own))
            refuse_another_tokenizer(*init, other.fingerprint(), own.fingerprint(), leave_tokenizer_out);
    chosen_tokenizer chosen{own, {{own.file_name(), bytes_of_file(tokenizer_file_of(stored))}}, std::nullopt};
    if (!has_published_tokenizer(stored)) return chosen;
    chosen.bos_first = own.specials().bos_first;
    // Other programs read the classes and the chat template there.
    std::string const settings = "tokenizer_config.json";
    if (auto const path = stored.path(settings); is_there(path)) chosen.files.emplace(settings, bytes_of_file(path));
    return chosen;
}

packing packing_from(std::optional<stored_model> const& init, data_options const& data, tokenizer const& tokenizer) {
    auto here = data;
    if (here.mode.empty() && init && init->description.calm && init->description.calm->data)
        here.mode = init->description.calm->data->mode;
    auto const specials = tokenizer.specials();
    if (here.mode.empty() && init && specials.exist() && specials.bos == specials.eos)
        here.mode = mode_name(packing::published_language_model);
    return packing_for(packed_for::language_model, here, tokenizer);
}

}  // namespace calm::apps
