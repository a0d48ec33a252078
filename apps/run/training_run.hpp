#pragma once
// A training run around the training loop: its recipe, config.json, directory, checkpoints and messages.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "calm/runs/run_directory.hpp"
#include "calm/train/session.hpp"
#include "registry.hpp"
#include "run/advice.hpp"
#include "run/baseline_scores.hpp"
#include "run/report.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

// The default recipe with the given options. Without --steps and --minutes the default number of steps applies. Without
// --warmup the default warm-up applies, but at most a tenth of the steps.
autoencoder_recipe recipe_for(autoencoder_recipe r, train_options const& o);
calm_recipe<any_objective> recipe_for(calm_recipe<any_objective> r, train_options const& o);
autoregressive_recipe recipe_for(autoregressive_recipe r, train_options const& o);

// The "calm" object of config.json.
calm_description description_of(std::string const& configuration, train_options const& o, std::uint64_t data_seed,
                                index_t block, packing mode, tokenizer const& tokenizer);

// Everything that determines a run's weights: configuration, text, tokenizer, a CALM's autoencoder (else null), initial
// model and recipe. `kind` is the model as the command line names it.
recipe_record settings_of(std::string const& kind, calm_description const& ours, train_options const& o,
                          corpus const& text, stored_model const* autoencoder, recipe_record const& recipe);

// A command line for the shell, without options for a single call: --fresh and --override.
std::string resume_command(std::vector<std::string> const& strings);

// Whether a run has a checkpoint to resume from. Throws errc::storage as run_directory does.
bool has_checkpoint(std::string const& directory);
// Removes a run's checkpoints and logs. Its model stays until the next run's first checkpoint. Throws errc::storage as
// run_directory does.
void start_over(std::string const& directory);

// A new or resumed run in its directory. The directory is locked against other processes, from construction if it holds
// a run, else from text() or begin() on.
class training_run {
public:
    // Finds the checkpoint to resume from, and reports damaged ones. Throws errc::storage if the path holds something
    // else, another process trains there, or a model is there without an intact checkpoint.
    explicit training_run(train_options const& options);
    // Removes the directory of a new run that failed before its first step, and the token file of a text that begin()
    // refused.
    ~training_run();
    training_run(training_run const&) = delete;
    training_run& operator=(training_run const&) = delete;

    // The documents to train on, tokenised once: the ids stay in a token file in the directory, or at the options'
    // `tokens`. Until begin() accepts it, the file of another text stays there. Creates the directory of a new run if
    // the file goes there. Throws as training_text and begin().
    corpus text(tokenizer const& tokenizer, std::uint64_t data_seed);

    // Compares settings with the run's original ones, then creates the directory or truncates its log to the
    // checkpoint. Returns false, with a message, if the run is finished. Throws errc::usage with a table of differing
    // settings unless --override is given, and errc::storage if another process has begun a run there. `holds_out`:
    // text is held out, so a finished run was also evaluated at its end. `fits` throws if the initial model does not
    // fit; it is called before anything changes, and then the options' `on_begin`.
    bool begin(recipe_record settings, training_recipe const& recipe, bool holds_out,
               std::function<void()> const& fits);

    // A resumed run keeps its warm-up and micro-batches, unless --warmup or --accumulation is given; more --steps or
    // another number of ranks do not change them. A new run on several ranks gets a power of two of micro-batches per
    // rank.
    void keep_as_begun(training_recipe& recipe) const;

    // The checkpoint to resume from, if any.
    [[nodiscard]] std::optional<found_checkpoint> const& from() const { return from_; }
    // Whether a setting changed since the run's start.
    [[nodiscard]] bool changed(std::string const& option) const;
    [[nodiscard]] run_report& report() { return *report_; }
    // Whether to evaluate at the end: text is held out and no signal ended the run. Collective.
    [[nodiscard]] bool logs_end() const;
    // Of the whole run, including earlier calls.
    [[nodiscard]] index_t steps() const { return steps_; }
    [[nodiscard]] double seconds() const { return seconds_; }

    // Moves to the checkpoint's position in the text, or to the next epoch if the text or its order changed.
    void seek(text_blocks& blocks) const;

    // Callbacks for the training loop. `write` writes a model directory. `evaluate` measures on held-out text, reports,
    // and returns the score (higher is better); `score` only measures. Both are called on all ranks if text is held
    // out, and must outlive the callbacks.
    training_callbacks callbacks(training_recipe const& recipe, text_blocks const& blocks,
                                 run_directory::write_model write, std::function<double(progress const&)> evaluate,
                                 std::function<double()> score);

    // Runs the loop. A non-finite number becomes an error that suggests what to do next.
    void train(std::function<void()> const& loop);

    // Prints the final messages: the remark if not empty, the model's path, and how to resume. Returns the exit status,
    // 0 or 128 + the signal that ended the run early.
    int end(std::string_view remark);

private:
    void find();                                    // the checkpoint to resume from
    void make_directory();                          // of a new run, unless it is made
    [[nodiscard]] std::string tokens_path() const;  // of the token file
    [[nodiscard]] std::string new_tokens_path() const { return tokens_path() + ".new"; }  // of one to replace it
    // Uses rank 0's checkpoint on all ranks.
    void take_from_first();
    // Rank 0's part of begin(): opens the directory and the log. False if the run is finished.
    bool open(training_recipe const& recipe, bool holds_out);
    void keep(training_state const& state, text_blocks const& blocks, run_directory::write_model const& write);

    train_options const& options_;
    std::optional<run_directory> directory_;
    std::optional<found_checkpoint> from_;
    std::optional<run_report> report_;
    recipe_record settings_;
    std::vector<recipe_difference> changes_;
    std::optional<double> score_;  // after the current step
    std::optional<double> best_;
    block_position position_;      // after the last step
    index_t steps_ = 0;            // done
    index_t begun_at_ = 0;         // steps before this call
    double seconds_ = 0;           // of these steps
    index_t planned_ = 0;          // 0 if only time ends the run
    std::optional<index_t> kept_;  // step of the newest checkpoint
    bool made_ = false;            // this object created the directory
    bool begun_ = false;           // begin() accepted the run
    bool holds_out_ = false;
};

// Baselines of a language model during training, besides the n-gram tables.
struct learning_levels {
    std::string helps;                        // advice if it learns no context
    std::optional<baseline_scores> baseline;  // an autoregressive run
};
// The baselines for a run of configuration `one` on V tokens; reads the run that --baseline names. Throws as
// read_baseline_scores() does.
learning_levels levels_of(entry const& one, train_options const& o, calm_description const& ours, index_t V);

// Reports and logs evaluations on held-out text after step `steps`. Returns the score that selects the best checkpoint:
// an autoencoder's negative loss, a language model's BrierLM.
double score_of(autoencoder_evaluation const& e);
double score_of(evaluation const& e);
double report_evaluation(run_report& report, autoencoder_evaluation const& e, index_t steps);
double report_evaluation(run_report& report, evaluation const& e, progress const& now, training_recipe const& recipe,
                         learning_levels const& levels);
// Reports an evaluation of the finished run as a table.
void log_final(run_report& report, autoencoder_evaluation const& e, index_t steps);
void log_final(run_report& report, evaluation const& e, index_t steps, double seconds, learning_levels const& levels);

// Warns that the autoencoder limits any language model, if it reconstructs less than 99 % of held-out tokens with
// noise.
void log_autoencoder(run_report& report, autoencoder_evaluation const& e);

// Reports the phases of patch-level training.
void log_patch_level(run_report& report, patch_level const& level);

// Throws errc::usage if --out is the directory of --autoencoder or --init, which are only read.
void refuse_same_directory(train_options const& o);

}  // namespace calm::apps
