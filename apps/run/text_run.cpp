#include "run/text_run.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/runs/run_directory.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/markov.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/rank_agreement.hpp"
#include "run/ranks.hpp"
#include "run/report.hpp"
#include "run/run_record.hpp"
#include "run/text_plan.hpp"
#include "run/text_record.hpp"
#include "run/training_run.hpp"
#include "text/text_data.hpp"
#include "text/text_output.hpp"
#include "training_jobs.hpp"

namespace calm::apps {

namespace {

constexpr char const* lock_file = "text.lock";

std::string in(text_options const& o, std::string const& name) {
    return calm::in_directory(o.out, name);
}
std::string tokenizer_file(text_options const& o) {
    return in(o, tokenizer_description{}.file);
}

std::string fingerprint_of(text_extent const& text) {
    return formatted("%llu documents, %llu bytes, %016llx", static_cast<unsigned long long>(text.documents),
                     static_cast<unsigned long long>(text.bytes), static_cast<unsigned long long>(text.sum));
}

// "12 documents, 3456 bytes", of the fingerprint.
std::string size_of_text(text_record const& record) {
    auto size = *calm::value_of(record.given, "text");
    size.resize(size.rfind(", "));
    if (std::string_view const one = "1 documents"; size.starts_with(one)) size.replace(0, one.size(), "1 document");
    return size;
}

// Everything that determines the result, except the text itself.
recipe_record given_record(text_options const& o, text_choices const& given) {
    std::string specs;
    for (auto const& spec : recorded(o.data.sources)) specs += (specs.empty() ? "" : " ") + spec;
    recipe_record all{{"data", printable_line(specs)},
                      {"data-seed", std::to_string(data_seed_of(o.data))},
                      {"seed", std::to_string(o.seed)}};
    if (!o.data.mode.empty()) all.push_back({"mode", o.data.mode});
    if (o.in_bf16) all.push_back({"dtype", "bf16"});
    if (o.rounding == weight_rounding::stochastic) all.push_back({"rounding", "stochastic"});
    auto const choices = record_of(given);
    all.insert(all.end(), choices.begin(), choices.end());
    return all;
}

// The choices of a stored plan. Throws errc::model_file if an option or the configuration's head does not accept one.
text_choices choices_in(text_options const& o, recipe_record const& plan) {
    auto const path = in(o, plan_file);
    auto made = choices_of(plan, path);
    if (auto const problems = choice_problems(configuration_named(made.configuration), made); !problems.empty())
        throw error(errc::model_file, path, "plan", problems.front());
    if (!made.vocabulary && !has_own_symbols(o.data.sources))
        throw error(errc::model_file, path, "plan",
                    "expected a vocabulary, found none; put the file back, or start over with --fresh");
    return made;
}

// The given choices, completed by those that the former plan made.
text_choices with_choices_of(text_options const& o, text_record const& before, text_choices const& given) {
    auto all = record_of(given);
    for (auto const& row : before.plan)
        if (calm::value_of(before.given, row.option) == nullptr && calm::value_of(all, row.option) == nullptr)
            all.push_back(row);
    return choices_of(all, in(o, plan_file));
}

text_record planned(text_options const& o, text_choices const& given, text_record const* before) {
    auto const asked = before != nullptr ? with_choices_of(o, *before, given) : given;
    require_possible(asked, compiled_configurations());
    auto const size = extent_of(o.data);
    text_facts const facts{.bytes = size.bytes,
                           .documents = size.documents,
                           .tenth = size.tenth,
                           .is_generated = is_generated(o.data.sources),
                           .has_own_symbols = has_own_symbols(o.data.sources)};
    // A configuration that is named is kept, whatever it is compiled for.
    auto const& all = compiled_configurations();
    auto plan = plan_of_text(facts, asked, asked.configuration.empty() ? configurations_for(o.device, all) : all);
    auto const choices = record_of(given);
    for (auto& row : plan.why)
        if (before != nullptr && calm::value_of(before->plan, row.option) != nullptr &&
            calm::value_of(choices, row.option) == nullptr)
            row.value = "as before";
    text_record made{given_record(o, given), record_of(plan.choices), plan.why, {}};
    made.given.push_back({"text", fingerprint_of(size)});
    return made;
}

bool is_finished(text_record const& record) {
    return std::find(record.done.begin(), record.done.end(), model_stage) != record.done.end();
}

// The current request, to compare with the former one. A text with the same name is read again only if the run is
// finished: a stage that still runs compares the content itself.
recipe_record given_beside(text_options const& o, text_choices const& given, text_record const& before) {
    auto now = given_record(o, given);
    auto const* const text = calm::value_of(before.given, "text");
    auto const* const was = calm::value_of(before.given, "data");
    if (text == nullptr || was == nullptr) return now;
    auto const data = *calm::value_of(now, "data");
    bool const renamed = *was != data;
    auto measured = o.data;
    auto const* const holdout = calm::value_of(before.given, "holdout");
    measured.holdout = holdout != nullptr ? *holdout : "";
    bool const is_read = renamed || (is_finished(before) && !is_generated(o.data.sources));
    now.push_back({"text", is_read ? fingerprint_of(extent_of(measured)) : *text});
    if (renamed && same_text(before.given, now))
        log_line("--data " + data + " is the same text as before, which was " + *was);
    return now;
}

// Refuses changes that are impossible once a model exists.
void refuse_another_model(text_options const& o, text_record const& before, text_record const& now) {
    for (auto const* const option : {"config", "vocabulary"}) {
        auto const of = [&](recipe_record const& plan) {
            auto const* const value = calm::value_of(plan, option);
            return value != nullptr ? *value : "none";
        };
        if (of(before.plan) == of(now.plan)) continue;
        throw error(errc::usage, sentence("--", option, ": the models in ", o.out, " have ", of(before.plan),
                                          ", which --override does not change: choose another --out, or start over "
                                          "with --fresh"));
    }
}

// The record to use, and whether the existing run is abandoned.
struct intention {
    text_record record;
    bool is_new = true;       // must be written
    bool starts_over = true;  // no stage is resumed
};

intention intended(text_options const& o, text_choices const& given, std::optional<text_record> const& before) {
    auto const holds_run = [&](char const* stage) { return run_directory::holds_run(in(o, stage)); };
    bool const begun = holds_run(autoencoder_stage) || holds_run(model_stage);
    if (!o.fresh && !before && begun)
        throw error(errc::storage, o.out, "",
                    sentence("holds a model, but no ", plan_file,
                             " to resume from; put that back, choose another path, or start over with --fresh"));
    auto const changes =
        before ? differences(before->given, given_beside(o, given, *before)) : std::vector<recipe_difference>{};
    if (o.fresh || !before || (!changes.empty() && !begun)) return {planned(o, given, nullptr)};
    if (changes.empty()) return {*before, false, false};
    if (!o.take_changes && changes.size() == 1 && changes[0].option == "text")
        throw error(errc::usage, o.out, "",
                    "expected the text that its model was trained on (" + changes[0].was +
                        "), found another one under the same name (" + changes[0].now +
                        "): start over with --fresh, or choose another --out");
    if (!o.take_changes)
        throw error(
            errc::usage, o.out + " holds a run that was started with other choices:",
            lines_of(to_table(changes) +
                     "\nTo resume it, give the former ones, or --override with the present ones; --fresh starts over"));
    auto now = planned(o, given, &*before);
    refuse_another_model(o, *before, now);
    return {std::move(now), true, false};
}

// Options common to both models.
train_options stage_options(text_options const& o, text_choices const& plan, char const* stage) {
    train_options t = o;
    t.tokenizer = has_own_symbols(o.data.sources) ? markov_vocabulary : tokenizer_file(o);
    t.configuration = plan.configuration;
    t.data.holdout = plan.holdout;
    t.schedule = plan.schedule;
    t.out = in(o, stage);
    t.tokens = in(o, tokens_file);
    t.is_stage = true;
    return t;
}

train_options autoencoder_options(text_options const& o, text_choices const& plan) {
    auto t = stage_options(o, plan, autoencoder_stage);
    t.minutes = plan.autoencoder_minutes;
    t.steps = plan.autoencoder_steps;
    t.batch = plan.autoencoder_batch;
    t.learning_rate = plan.autoencoder_learning_rate;
    t.learning_rate_option = "--autoencoder-learning-rate";
    t.warmup = plan.autoencoder_warmup;
    t.of_autoencoder.kl_weight = plan.kl_weight;
    t.of_autoencoder.random_patches = plan.random_patches;
    return t;
}

train_options model_options(text_options const& o, text_plan const& plan) {
    auto t = stage_options(o, plan.choices, model_stage);
    t.autoencoder = in(o, autoencoder_stage);
    t.minutes = plan.minutes_of_model();
    t.steps = plan.choices.steps;
    t.batch = plan.choices.batch;
    t.block = plan.choices.block;
    t.learning_rate = plan.choices.learning_rate;
    t.muon = plan.choices.muon;
    t.warmup = plan.choices.warmup;
    t.head = plan.choices.head;
    return t;
}

struct stage {
    char const* name;
    std::function<int(train_options const&)> train;
    train_options options;
    std::string needed;  // a file from the previous stage, or ""
};

std::vector<stage> stages_of(text_options const& o, text_record const& record) {
    text_plan const plan{choices_in(o, record.plan), record.why};
    auto const& one = configuration_named(plan.choices.configuration);
    auto const& work = one.on(o.device);
    auto const tokenizer = has_own_symbols(o.data.sources) ? "" : tokenizer_file(o);
    auto const with = [&](int (*train)(training_job const&, train_options const&)) {
        return [&one, &work, train](train_options const& of) { return train({one, work}, of); };
    };
    if (one.is_autoregressive()) return {{model_stage, with(train_autoregressive), model_options(o, plan), tokenizer}};
    return {{autoencoder_stage, with(train_autoencoder), autoencoder_options(o, plan.choices), tokenizer},
            {model_stage, with(train_calm), model_options(o, plan),
             in(o, autoencoder_stage) + "/" + std::string(config_file)}};
}

std::string table_of(text_options const& o, text_record const& record) {
    return to_table({choices_in(o, record.plan), record.why});
}

// Prints the plan and the stages known so far: planning an autoencoder needs the tokenizer, and planning a language
// model needs the autoencoder.
int log_plan(text_options const& o, intention const& what) {
    auto const& record = what.record;
    // Selects the device, so it fails as the run would; but sizes on demand are not compiled for a plan alone.
    if (what.starts_over) configuration_named(choices_in(o, record.plan).configuration).require_device(o.device);
    auto const stages = what.starts_over ? std::vector<stage>() : stages_of(o, record);
    text_output().put(table_of(o, record));
    if (what.starts_over) return 0;
    for (auto const& stage : stages) {
        if (!stage.needed.empty() && !calm::is_there(stage.needed)) break;
        text_output().put("\n" + std::string(stage.name) + "\n");
        if (int const code = stage.train(stage.options); code != 0) return code;
    }
    return 0;
}

void log_how_to_resume(text_options const& o, text_choices const& plan) {
    auto const& one = configuration_named(plan.configuration);
    auto const K = one.is_autoregressive() ? 1 : static_cast<std::size_t>(one.calm().autoencoder.patch_size);
    auto const line = [](std::string const& program, std::vector<std::string> const& arguments) {
        auto command = words_that_start(program);
        command.insert(command.end(), arguments.begin(), arguments.end());
        return resume_command(command);
    };
    log_line("to generate: " +
             line("generate",
                  {o.out, "--prompt", has_own_symbols(o.data.sources) ? std::string(K, 'A') : "Once upon a time"}));
    std::vector<std::string> measure{o.out, "--data"};
    measure.insert(measure.end(), o.data.sources.begin(), o.data.sources.end());
    bool const held = !plan.holdout.empty();
    if (held) measure.insert(measure.end(), {"--holdout", plan.holdout});
    bool const own = std::any_of(o.data.sources.begin(), o.data.sources.end(),
                                 [](auto const& spec) { return document_source::parse(spec).is_generated(); });
    if (held || own)
        log_line("to evaluate: " + line("evaluate", measure));
    else
        log_line("nothing was held out, so nothing was measured: give a text of ten documents or more, one per line of "
                 "a .jsonl");
    log_line("to plot:     " + line("plot", {o.out}));
}

// Writes the plan and this call into the directory. A run exists once it has a plan.
void write_request(text_options const& o, intention const& what) {
    if (what.is_new) write_text_record(o.out, what.record);
    write_record(o.out, o.record, 0);
}

// Replaces the stages and the tokenizer of the former run. The request comes before the new tokenizer: a run that is
// killed between them trains it again.
void start_over_with(text_options const& o, intention const& what, std::optional<tokenizer> const& tokenizer) {
    for (auto const* const name : {autoencoder_stage, model_stage}) start_over(in(o, name));
    std::filesystem::remove(tokenizer_file(o));
    write_request(o, what);
    if (tokenizer) write_tokenizer(*tokenizer, tokenizer_file(o));
}

// Whether a finished stage's model can be read; otherwise the stage restores it from a checkpoint.
bool holds_model(std::string const& directory) {
    if (!run_directory::holds_run(directory)) return false;
    try {
        static_cast<void>(read_model_description(directory));
        return true;
    } catch (error const& damage) {
        log_line(sentence(damage.what(), "; it is restored from the newest checkpoint"));
        return false;
    }
}

// Throws errc::data if the text is shorter than one block of the language model.
void require_text_of_model(train_options const& o, tokenizer const& tokenizer) {
    auto const& one = configuration_named(o.configuration);
    bool const by_token = one.is_autoregressive();
    packing_rule const rule{packing_for(packed_for::language_model, o.data, tokenizer),
                            by_token ? 1 : static_cast<std::size_t>(one.calm().autoencoder.patch_size), o.seed};
    auto const block = by_token ? recipe_for(one.defaults.autoregressive, o).block_tokens
                                : recipe_for(one.defaults.calm, o).block_tokens;
    require_blocks(o.data, tokenizer, data_seed_of(o.data), rule, block);
}

// The tokenizer of a run that starts over, none for symbols. Throws as require_text_of_model.
std::optional<tokenizer> checked_tokenizer(text_options const& o, text_record const& record,
                                           train_options const& of_model) {
    if (has_own_symbols(o.data.sources)) {
        require_text_of_model(of_model, tokenizer::of_symbols(markov_alphabet));
        return std::nullopt;
    }
    auto tokenizer = trained_tokenizer(of_model.data, *choices_in(o, record.plan).vocabulary);
    require_text_of_model(of_model, tokenizer);
    return tokenizer;
}

// Runs the unfinished stages in order. Returns the exit status of the one that ended early, or 0.
int trained(text_options const& o, text_record& record, std::vector<stage>& stages) {
    if (as_first_rank([&] { return !has_own_symbols(o.data.sources) && !calm::is_there(tokenizer_file(o)); })) {
        auto const choices = choices_in(o, record.plan);
        auto data = o.data;
        data.holdout = choices.holdout;
        if (int const code = at_first_rank([&] {
                return train_tokenizer({data, *choices.vocabulary, tokenizer_file(o)});
            });
            code != 0)
            return code;
    }
    // Fails before minutes are spent on the autoencoder.
    if (int const code = at_first_rank([&] {
            if (auto const& last = stages.back().options; record.done.empty() && stages.size() > 1)
                require_text_of_model(last, tokenizer_named(last.tokenizer));
            return 0;
        });
        code != 0)
        return code;
    for (auto& stage : stages) {
        bool const done = std::find(record.done.begin(), record.done.end(), stage.name) != record.done.end();
        if (as_first_rank([&] { return done && holds_model(stage.options.out); })) {
            log_line("the " + std::string(stage.name) + " is trained");
            continue;
        }
        log_line("the " + std::string(stage.name) + ":");
        // A model of an abandoned run may still exist.
        stage.options.fresh = !as_first_rank([&] { return has_checkpoint(stage.options.out); });
        if (int const code = stage.train(stage.options); code != 0) return code;
        if (!done) record.done.emplace_back(stage.name);
        if (is_first_rank()) write_text_record(o.out, record);
        barrier();
    }
    return 0;
}

// Removes the autoencoder of a CALM run that was started over as an autoregressive one.
void remove_autoencoder_of_before(text_options const& o) {
    auto const path = in(o, autoencoder_stage);
    if (!run_directory::holds_run(path)) return;
    std::filesystem::remove_all(path);
    log_line("removed " + path + ", of the earlier run: this model has no autoencoder");
}

}  // namespace

bool can_hold_text_run(std::string const& path) {
    if (calm::is_there(calm::in_directory(path, lock_file))) return true;
    return run_directory::can_hold(path) && !run_directory::holds_run(path);
}

int train_text(text_options const& o) {
    auto given = o.choices;
    given.holdout = o.data.holdout;
    require_possible(given, compiled_configurations());
    auto const before = o.fresh ? std::nullopt : read_text_record(o.out);
    intention what;
    if (is_first_rank()) what = intended(o, given, before);
    if (o.dry_run) return log_plan(o, what);
    // Selects the device, so it can fail before anything is written.
    auto stages = is_first_rank() ? stages_of(o, what.record) : std::vector<stage>();

    std::optional<directory_lock> held;
    if (is_first_rank()) {
        calm::make_directories(o.out);
        held.emplace(o.out, lock_file);
        if (!o.fresh && read_text_record(o.out) != before)
            throw error(errc::storage, o.out, "",
                        "another run was started or resumed here meanwhile; give the same command again");
        log_line(what.is_new ? "the plan for " + size_of_text(what.record) + ":"
                             : "resumes with the plan in " + in(o, plan_file) + ":");
        log_lines(table_of(o, what.record));
    }
    // The former run stays until the new text is known to be long enough.
    std::optional<tokenizer> tokenizer;
    if (int const code = at_first_rank([&] {
            if (what.starts_over) tokenizer = checked_tokenizer(o, what.record, stages.back().options);
            return 0;
        });
        code != 0)
        return code;
    if (is_first_rank() && what.starts_over) start_over_with(o, what, tokenizer);
    require_shared(in(o, plan_file));
    auto const plan = text_of_first_rank([&] { return plan_text(what.record); });
    if (!is_first_rank()) {
        what.record = plan_in(plan, in(o, plan_file));
        stages = stages_of(o, what.record);
    }
    // A run that is resumed has its plan and its calls unchanged until the first stage has passed all checks.
    bool written = what.starts_over;
    auto const write = [&] {
        if (is_first_rank() && !std::exchange(written, true)) write_request(o, what);
    };
    for (auto& stage : stages) stage.options.on_begin = write;
    if (int const code = trained(o, what.record, stages); code != 0) return code;
    write();
    if (is_first_rank() && stages.front().name != autoencoder_stage) remove_autoencoder_of_before(o);
    log_line("the model is in " + in(o, model_stage) +
             "; to train it longer, give --override and more --minutes or --steps");
    log_how_to_resume(o, choices_in(o, what.record.plan));
    return 0;
}

}  // namespace calm::apps
