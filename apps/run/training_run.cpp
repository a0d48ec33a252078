#include "run/training_run.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "calm/base/detail/checksum.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/base/detail/shell_word.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/text/build_corpus.hpp"
#include "command/number_within.hpp"
#include "program.hpp"
#include "run/rank_agreement.hpp"
#include "run/ranks.hpp"
#include "run/run_plan.hpp"
#include "run/run_record.hpp"
#include "run/training_curve.hpp"

namespace calm::apps {

namespace {

void take_common(training_recipe& r, train_options const& o) {
    if (o.steps || o.minutes) {
        r.steps = o.steps.value_or(0);
        r.seconds = 60 * o.minutes.value_or(0);
    }
    r.learning_rate = o.learning_rate.value_or(r.learning_rate);
    r.optimizer.muon = o.muon.value_or(r.optimizer.muon);
    r.rounding = o.rounding;
    // Warm-up takes at most a tenth of the steps, if they are known.
    if (r.steps > 0) r.warmup = std::min(r.warmup, std::max<index_t>(1, r.steps / 10));
    r.warmup = o.warmup.value_or(r.warmup);
    r.schedule = o.schedule.value_or(r.schedule);
    r.accumulation = o.accumulation.value_or(r.accumulation);
    r.evaluate_every = o.evaluate_every.value_or(r.evaluate_every);
    r.save_every = o.save_every.value_or(r.save_every);
    r.skip_nonfinite = o.skip_nonfinite;
}

// Files in a run's directory besides models and the text.
std::vector<std::string> files_beside() {
    return {metrics_file, run_file, options_toml, samples_file};
}

// Sixteen digits are enough to distinguish files in a table.
std::string short_hash(std::string const& digits) {
    return digits.substr(0, 16);
}

// A checksum of all ids and document lengths, computed at memory speed. It detects accidents, not attacks.
std::string fingerprint_of(corpus const& text) {
    checksum sum;
    for (std::size_t i = 0; i < text.documents(); ++i) {
        auto const ids = text.document(i);
        std::uint64_t const size = ids.size();
        sum.add(std::as_bytes(std::span(&size, 1)));
        sum.add(std::as_bytes(ids));
    }
    return formatted("%zu documents, %zu tokens, %016llx", text.documents(), text.tokens(),
                     static_cast<unsigned long long>(sum.value()));
}

// A hash of names and values, independent of the file layout.
std::string fingerprint_of(stored_model const& model) {
    sha256 hash;
    auto const add = [&](stored_model const& one) {
        for (auto const& tensor : one.weights->tensors()) {
            hash.add(tensor.name);
            for (auto const part : {tensor.bytes, tensor.scales})
                hash.add({reinterpret_cast<char const*>(part.data()), part.size()});
        }
    };
    add(model);
    if (model.autoencoder != nullptr) add(*model.autoencoder);
    return short_hash(hash.hex());
}

// Reports if the same text has another name.
void log_renamed(recipe_record const& was, recipe_record const& now) {
    auto const* const before = calm::value_of(was, "data");
    auto const* const data = calm::value_of(now, "data");
    if (before == nullptr || data == nullptr || *before == *data || !same_text(was, now)) return;
    log_line("--data " + printable_line(*data) + " is the same text as before, which was " + printable_line(*before));
}

bool is_over(training_recipe const& recipe, training_state const& state) {
    return progress_fraction(recipe, state.step, state.seconds) >= 1;
}

// Throws errc::usage if the ranks cannot share the micro-batches of each step of a resumed stage of `train text`. The
// training checks this too, but it names --accumulation, which `train text` lacks.
void require_shared_steps(std::string const& out, index_t micro_batches) {
    index_t const R = ranks() != nullptr ? ranks()->ranks() : 1;
    if (R == 1) return;
    std::vector<std::string> possible;  // the numbers of ranks that each have 1, 2, 4, ... micro-batches
    for (index_t count = micro_batches; count > 0; count = count % 2 == 0 ? count / 2 : 0) {
        if (count == R) return;
        possible.insert(possible.begin(), std::to_string(count));
    }
    if (possible.front() != "1") possible.insert(possible.begin(), "1");
    throw error(errc::usage,
                sentence("expected ", joined(possible, " or "), possible.size() == 1 ? " rank" : " ranks",
                         " for the run in ", out, ", found ", R, ": start as many, or start over with --fresh"));
}

}  // namespace

autoencoder_recipe recipe_for(autoencoder_recipe r, train_options const& o) {
    take_common(r, o);
    r.batch_tokens = o.batch.value_or(r.batch_tokens);
    auto const& given = o.of_autoencoder;
    r.objective.kl_weight = given.kl_weight.value_or(r.objective.kl_weight);
    r.objective.kl_clamp = given.kl_clamp.value_or(r.objective.kl_clamp);
    r.objective.dropout = given.dropout.value_or(r.objective.dropout);
    r.random_patches = given.random_patches.value_or(r.random_patches);
    return r;
}

calm_recipe<any_objective> recipe_for(calm_recipe<any_objective> r, train_options const& o) {
    take_common(r, o);
    r.sequences = o.batch.value_or(r.sequences);
    r.block_tokens = o.block.value_or(r.block_tokens);
    take(r.objective.fields, o.head);
    return r;
}

autoregressive_recipe recipe_for(autoregressive_recipe r, train_options const& o) {
    take_common(r, o);
    r.sequences = o.batch.value_or(r.sequences);
    r.block_tokens = o.block.value_or(r.block_tokens);
    r.level = o.level.value_or(r.level);
    return r;
}

calm_description description_of(std::string const& configuration, train_options const& o, std::uint64_t data_seed,
                                index_t block, packing mode, tokenizer const& tokenizer) {
    calm_description ours;
    ours.configuration = configuration;
    ours.extras.omitted.emplace("posterior_std");  // until it is measured
    ours.data = data_description{.mode = std::string(mode_name(mode)),
                                 .block_tokens = block,
                                 .data_seed = data_seed,
                                 .holdout = o.data.holdout,
                                 .sources = recorded(o.data.sources),
                                 .extras = {}};
    ours.tokenizer = tokenizer_description{.file = tokenizer.file_name(),
                                           .pattern = std::string(tokenizer.pattern()),
                                           .fingerprint = tokenizer.fingerprint(),
                                           .extras = {}};
    return ours;
}

recipe_record settings_of(std::string const& kind, calm_description const& ours, train_options const& o,
                          corpus const& text, stored_model const* autoencoder, recipe_record const& recipe) {
    recipe_record all{{"train", kind},
                      {"config", ours.configuration},
                      {"data", joined(ours.data->sources, " ")},
                      {"data-seed", std::to_string(ours.data->data_seed)},
                      {"holdout", ours.data->holdout},
                      {"mode", ours.data->mode},
                      {"text", fingerprint_of(text)},
                      {"tokenizer", short_hash(ours.tokenizer->fingerprint)}};
    if (autoencoder != nullptr) all.push_back({"autoencoder", fingerprint_of(*autoencoder)});
    if (!o.init.empty()) all.push_back({"init", fingerprint_of(read_model_description(o.init))});
    if (o.in_bf16) all.push_back({"dtype", "bf16"});
    all.insert(all.end(), recipe.begin(), recipe.end());
    return all;
}

std::string resume_command(std::vector<std::string> const& strings) {
    std::string line;
    for (auto const& word : strings) {
        auto const name = word.substr(0, word.find('='));
        if (name == "--fresh" || name == "--override") continue;
        line += (line.empty() ? "" : " ") + shell_word(word);
    }
    return line;
}

bool has_checkpoint(std::string const& directory) {
    return run_directory::holds_run(directory) && run_directory(directory).newest().has_value();
}

void start_over(std::string const& directory) {
    if (run_directory::holds_run(directory)) run_directory(directory).clear(files_beside());
}

training_run::training_run(train_options const& options) : options_(options) {
    if (options.dry_run) return;
    set_rank_timeout_active(false);
    if (is_first_rank()) find();
    take_from_first();
}

void training_run::find() {
    auto const& options = options_;
    if (!run_directory::holds_run(options.out) && run_directory::can_hold(options.out)) return;
    directory_.emplace(options.out);
    if (options.fresh) return;
    from_ = directory_->newest([](std::string const& damage) {
        log_line("a checkpoint is damaged, so the one before it is used: " + damage);
    });
    best_ = directory_->best_score(from_ ? from_->record.state.step : 0);
    if (!from_ && is_there(directory_->path(weights_file)))
        throw error(errc::storage, options.out, "",
                    "holds a model, but no checkpoint to resume from; choose another path, or --fresh to overwrite it");
}

void training_run::take_from_first() {
    auto const directory = text_of_first_rank([&] { return from_ ? from_->directory : std::string(); });
    if (!directory.empty()) require_shared(in_directory(directory, state_file));
    if (!is_first_rank() && !directory.empty()) from_ = found_checkpoint{directory, read_record(directory)};
}

training_run::~training_run() {
    if (!begun_ && !options_.dry_run && is_first_rank()) {
        std::error_code ignored;
        std::filesystem::remove(new_tokens_path(), ignored);
    }
    if (!made_ || steps_ > 0 || kept_) return;
    auto files = files_beside();
    files.emplace_back(tokens_file);
    directory_->discard(files);
}

void training_run::make_directory() {
    if (directory_) return;
    directory_.emplace(options_.out);
    if (!options_.fresh && directory_->newest())
        throw error(errc::storage, options_.out, "",
                    "another run was started here meanwhile; give the same command again");
    made_ = true;
}

std::string training_run::tokens_path() const {
    return options_.tokens.empty() ? in_directory(options_.out, tokens_file) : options_.tokens;
}

corpus training_run::text(tokenizer const& tokenizer, std::uint64_t data_seed) {
    if (is_generated(options_.data.sources)) return training_text(options_.data, tokenizer, data_seed);
    if (options_.tokens.empty() && is_first_rank()) make_directory();
    return training_text(options_.data, tokenizer, data_seed, tokens_path(), new_tokens_path());
}

void training_run::keep_as_begun(training_recipe& recipe) const {
    auto const was = [&](char const* option, index_t least) -> std::optional<index_t> {
        auto const* const value = from_ ? calm::value_of(from_->record.recipe, option) : nullptr;
        return value == nullptr ? std::nullopt : number_within<index_t>(*value, least, limits::steps);
    };
    if (!options_.warmup) recipe.warmup = was("warmup", 0).value_or(recipe.warmup);
    if (options_.accumulation) return;
    if (auto const before = was("accumulation", 1))
        recipe.accumulation = *before;
    else if (auto const* const all = ranks(); all != nullptr) {
        auto const each = (recipe.accumulation + all->ranks() - 1) / all->ranks();
        recipe.accumulation = all->ranks() * static_cast<index_t>(std::bit_ceil(static_cast<std::uint64_t>(each)));
    }
}

bool training_run::changed(std::string const& option) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](auto const& each) { return each.option == option; });
}

bool training_run::begin(recipe_record settings, training_recipe const& recipe, bool holds_out,
                         std::function<void()> const& fits) {
    settings_ = std::move(settings);
    planned_ = recipe.steps;
    holds_out_ = holds_out;
    if (from_) changes_ = differences(from_->record.recipe, settings_);
    agree([&] {
        if (!changes_.empty() && !options_.take_changes)
            throw error(
                errc::usage, options_.out + " holds a run that was started with other settings:",
                lines_of(
                    to_table(changes_) +
                    "\nTo resume it, give the former ones, or --override with the present ones; --fresh starts over"));
        if (options_.is_stage && from_ && !is_over(recipe, from_->record.state))
            require_shared_steps(options_.out, recipe.accumulation);
        fits();
        std::vector<setting> all;
        for (auto const& [option, value] : settings_) all.push_back({option, value});
        return all;
    });
    if (from_) {
        steps_ = from_->record.state.step;
        seconds_ = from_->record.state.seconds;
    }
    begun_at_ = steps_;
    if (!is_first_rank()) report_.emplace();
    return as_first_rank([&] { return open(recipe, holds_out); });
}

bool training_run::open(training_recipe const& recipe, bool holds_out) {
    make_directory();
    if (is_there(new_tokens_path())) put_in_place(new_tokens_path(), tokens_path());
    begun_ = true;
    if (options_.on_begin) options_.on_begin();
    if (from_) log_renamed(from_->record.recipe, settings_);
    if (from_ && !same_measure(from_->record.recipe, settings_)) best_.reset();
    if (options_.fresh) directory_->clear(files_beside());
    std::uint64_t const logged = from_ ? from_->record.log_bytes : 0;
    bool finished = false;
    if (from_) {
        directory_->publish(from_->directory);
        auto const& state = from_->record.state;
        kept_ = state.step;
        finished = is_over(recipe, state);
        // The log contains the final evaluation; if it is missing, the end is repeated.
        std::error_code absent;
        auto const bytes = std::filesystem::file_size(directory_->path(metrics_file), absent);
        if (finished)
            log_line(sentence("the run in ", options_.out, " is finished: ", state.step, " steps in ",
                              duration_text(state.seconds),
                              options_.is_stage ? "" : ". To train longer, give a larger --steps or --minutes"));
        if (finished && !absent && (bytes > logged || !holds_out)) return false;
    }
    report_.emplace(directory_->path(), logged);
    auto record = options_.record;
    record.options = with_defaults(record.options, {{"warmup", std::to_string(recipe.warmup)},
                                                    {"accumulation", std::to_string(recipe.accumulation)}});
    write_record(directory_->path(), record, steps_);
    if (from_ && !finished)
        report_->print_line(sentence("resumes after step ", steps_, " of the run in ", options_.out));
    else if (!from_ && !made_ && !options_.fresh)
        report_->print_line("the run in " + options_.out + " has no checkpoint yet: it starts with its first step");
    if (!changes_.empty()) report_->print_lines("with other settings from here on:\n" + to_table(changes_));
    return true;
}

void training_run::seek(text_blocks& blocks) const {
    if (!from_) return;
    auto const& at = from_->record.data;
    bool const another = changed("seed") || !same_measure(from_->record.recipe, settings_);  // changes order or text
    blocks.seek(another ? block_position{at.epoch + 1, 0} : at);
}

void training_run::keep(training_state const& state, text_blocks const& blocks,
                        run_directory::write_model const& write) {
    report_->flush();
    if (auto const samples = directory_->path(samples_file); is_there(samples)) flush_file(samples);
    directory_->save({state, options_.seed, blocks.position(), report_->bytes(), score_, settings_}, write,
                     static_cast<std::size_t>(options_.keep));
    kept_ = state.step;
}

training_callbacks training_run::callbacks(training_recipe const& recipe, text_blocks const& blocks,
                                           run_directory::write_model write,
                                           std::function<double(progress const&)> evaluate,
                                           std::function<double()> score) {
    note_signals(
        "stops after this step and saves the model; the same signal again (Ctrl-C) stops at once and saves nothing\n");
    training_callbacks calls;
    calls.start = [this, peak = recipe.machine_peak](memory_plan const& plan) { report_->plan(plan, peak); };
    calls.resume = [this](training_state& state) {
        if (from_) restore_training(from_->directory, state);
    };
    calls.step = [this](progress const& now) {
        report_->step(now);
        steps_ = now.step + 1;
        seconds_ = now.seconds;
        score_.reset();
    };
    calls.skipped = [this](progress const& now, error const& why) { report_->skipped(now, why); };
    if (holds_out_)
        calls.evaluate = [this, measure = std::move(evaluate)](progress const& now) { score_ = measure(now); };
    calls.ended = [this, measure = std::move(score)](progress const&) {
        if (holds_out_ && !score_ && noted_signal_of_ranks() == 0) score_ = measure();
    };
    calls.checkpoint = [this, &blocks, recipe, write = std::move(write)](training_state const& state,
                                                                         state_after when) {
        // After the last step of a finished run, only the final evaluation follows in the log.
        if (when == state_after::end && progress_fraction(recipe, state.step, state.seconds) >= 1) report_->log_now();
        bool const better = score_ && (!best_ || *score_ > *best_);
        if (better) best_ = score_;
        if (better || when != state_after::evaluation) keep(state, blocks, write);
    };
    calls.stop = [] { return noted_signal_of_ranks() != 0; };
    return calls;
}

void training_run::train(std::function<void()> const& loop) {
    try {
        loop();
    } catch (error const& problem) {
        if (problem.code() != errc::non_finite) throw;
        std::string const advice =
            kept_
                ? "The checkpoint of step " + std::to_string(*kept_) + " is kept: resume from it with a lower " +
                      options_.learning_rate_option + " and --override, or with"
                : "There is no checkpoint yet: start again with a lower " + options_.learning_rate_option + ", or with";
        throw error(errc::non_finite, problem.what() + std::string("."),
                    lines_of(advice + " --skip-nonfinite N, which skips up to N steps"));
    }
    set_rank_timeout_active(true);
    report_->finish();
}

bool training_run::logs_end() const {
    return holds_out_ && noted_signal_of_ranks() == 0;
}

int training_run::end(std::string_view remark) {
    int const signal = noted_signal();
    if (!remark.empty()) report_->print_line(remark);
    report_->print_line((signal != 0 ? "stopped by a signal; wrote " : "wrote ") + options_.out);
    if (signal == 0 && steps_ < planned_)
        report_->print_line("the time was up after " + grouped(steps_) + " of " + grouped(planned_) +
                            " steps; the same command with a larger --minutes resumes it");
    if (auto const* const all = ranks(); all != nullptr && steps_ > begun_at_)
        report_->print_line(sentence(all->ranks(), " ranks; rank 0 sent ",
                                     bytes_text(all->bytes_sent() / static_cast<std::uint64_t>(steps_ - begun_at_)),
                                     " per step"));
    if (options_.plot && steps_ > 0 && is_first_rank()) report_->print_line(plot_training(options_.out).sentence);
    if (signal == 0) return 0;
    report_->print_line(options_.record.words.empty() ? "the same command resumes it"
                                                      : "to resume: " + resume_command(options_.record.words));
    return 128 + signal;
}

double score_of(autoencoder_evaluation const& e) {
    return -e.cross_entropy;
}

double score_of(evaluation const& e) {
    return *e.brier_lm;
}

namespace {

void log(run_report& report, autoencoder_evaluation const& e, index_t steps) {
    report.log({{"step", steps},
                {"token_accuracy", e.token_accuracy},
                {"token_accuracy_posterior", e.token_accuracy_posterior},
                {"heldout_posterior_std", e.posterior_std},
                {"heldout_loss", e.cross_entropy}});
}

// The head's loss for a CALM, the cross-entropy for an autoregressive model.
double loss_of(evaluation const& e) {
    return e.head_loss ? *e.head_loss : *e.cross_entropy;
}

void log(run_report& report, evaluation const& e, index_t steps,
         std::optional<baseline_scores::scores> const& baseline) {
    auto const list = [](auto const& scores) { return std::vector<double>(scores.begin(), scores.end()); };
    report.log({{"step", steps},
                {"brier", list(*e.brier)},
                {"brier_lm", *e.brier_lm},
                {"brier_lm_se", e.brier_lm_se.value_or(progress::none)},
                {"unigram_brier", list(*e.unigram_brier)},
                {"unigram_brier_lm", brier_lm(*e.unigram_brier)},
                {"bigram_brier", list(*e.bigram_brier)},
                {"bigram_brier_lm", *e.bigram_brier_lm},
                {"heldout_loss", loss_of(e)},
                {"bits_per_byte", e.bits_per_byte.value_or(progress::none)},
                {"baseline_seconds", baseline ? baseline->seconds : progress::none},
                {"baseline_brier_1", baseline ? baseline->brier_1 : progress::none},
                {"baseline_brier_lm", baseline ? baseline->brier_lm : progress::none}});
}

std::optional<baseline_scores::scores> baseline_at(learning_levels const& levels, double seconds) {
    return levels.baseline ? levels.baseline->at(seconds) : std::nullopt;
}

}  // namespace

double report_evaluation(run_report& report, autoencoder_evaluation const& e, index_t steps) {
    log(report, e, steps);
    report.print_line(formatted("step %lld  held-out tokens right %.3f %%, with posterior noise %.3f %%",
                                static_cast<long long>(steps), 100 * e.token_accuracy,
                                100 * e.token_accuracy_posterior));
    return score_of(e);
}

learning_levels levels_of(entry const& one, train_options const& o, calm_description const& ours, index_t V) {
    return {.helps = what_helps(one, V, compiled_configurations(), o.is_stage ? "train text" : "train tokenizer"),
            .baseline = o.baseline.empty() ? std::nullopt : std::optional(read_baseline_scores(o.baseline, ours))};
}

double report_evaluation(run_report& report, evaluation const& e, progress const& now, training_recipe const& recipe,
                         learning_levels const& levels) {
    auto const baseline = baseline_at(levels, now.seconds);
    log(report, e, now.step + 1, baseline);
    double const brier_1 = (*e.brier)[0];
    double const unigram = (*e.unigram_brier)[0];
    auto const why_0 = not_positive(*e.brier);
    report.print_line(formatted("step %lld%s  held-out loss %.4f, Brier-1 %.3f (unigram %.3f, bigram %.3f), "
                                "BrierLM %.2f (bigram %.2f)",
                                static_cast<long long>(now.step + 1), now.first_phase ? " (patch level)" : "",
                                loss_of(e), brier_1, unigram, (*e.bigram_brier)[0], *e.brier_lm, *e.bigram_brier_lm) +
                      (why_0.empty() ? "" : ", 0 because " + why_0) +
                      (baseline ? "; " + baseline_text(*baseline, brier_1, *e.brier_lm) : "") +
                      (e.bits_per_byte ? formatted("; %.4f bits per byte", *e.bits_per_byte) : ""));
    // Printed once: at the first evaluation after a fifth of the run and after the warm-up.
    if (!now.first_phase && now.done >= 0.2 && now.step >= recipe.warmup && report.first_time() && brier_1 <= unigram)
        report.print_line(no_context_sentence(brier_1, unigram, levels.helps));
    return score_of(e);
}

void log_final(run_report& report, autoencoder_evaluation const& e, index_t steps) {
    log(report, e, steps);
    evaluation all;
    all.add(e);
    report.print_lines(to_table(all));
}

void log_final(run_report& report, evaluation const& e, index_t steps, double seconds, learning_levels const& levels) {
    auto const baseline = baseline_at(levels, seconds);
    log(report, e, steps, baseline);
    report.print_lines(to_table(e));
    report.print_line(
        formatted("BrierLM %.2f on held-out text, the bigram table %.2f", *e.brier_lm, *e.bigram_brier_lm));
    if (baseline) report.print_line(baseline_text(*baseline, (*e.brier)[0], *e.brier_lm));
    if (e.optimal_brier_lm)
        report.print_line(formatted("that is %.1f %% of the optimum, %.2f", 100 * *e.brier_lm / *e.optimal_brier_lm,
                                    *e.optimal_brier_lm));
}

void log_patch_level(run_report& report, patch_level const& level) {
    if (level.first_phase() > 0) report.print_line("patch level: " + patch_level_text(level));
}

void log_autoencoder(run_report& report, autoencoder_evaluation const& e) {
    if (e.token_accuracy_posterior < 0.99)
        report.print_line(
            formatted("the autoencoder restores %.2f %% of held-out tokens with its noise, which limits every "
                      "model on it: train it for longer, until 99.9 %%",
                      100 * e.token_accuracy_posterior));
}

void refuse_same_directory(train_options const& o) {
    for (auto const& [option, read] : {std::pair{"--autoencoder", o.autoencoder}, {"--init", o.init}}) {
        std::error_code unknown;
        if (!read.empty() && std::filesystem::equivalent(read, o.out, unknown))
            throw error(errc::usage, sentence("--out: ", o.out, " is the directory of ", option,
                                              ", which is only read: choose another path"));
    }
}

}  // namespace calm::apps
