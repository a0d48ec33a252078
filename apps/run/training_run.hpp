#pragma once
// A training run around the loop: recipes from options, what config.json says, where to go on, and what to say.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calm/io/model_directory.hpp"
#include "calm/runs/run_directory.hpp"
#include "calm/train/session.hpp"
#include "registry.hpp"
#include "run/advice.hpp"
#include "run/report.hpp"
#include "run/scores_beside.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

// The defaults with what the command line says instead. Without --steps and --minutes the default steps hold, without
// --warmup the default warm-up, of a run of less than ten times as many steps a tenth of them.
autoencoder_recipe recipe_for(autoencoder_recipe r, train_options const& o);
calm_recipe<any_objective> recipe_for(calm_recipe<any_objective> r, train_options const& o);
autoregressive_recipe recipe_for(autoregressive_recipe r, train_options const& o);

// Our object in config.json.
calm_description description_of(std::string const& configuration, train_options const& o, std::uint64_t data_seed,
                                index_t block, packing mode, tokenizer const& words);

// All that the weights of a run follow from: configuration, text, tokenizer, the autoencoder of a CALM, or null, the
// model that it starts from, and the recipe. `kind` is what is trained, as the command line names it.
recipe_record settings_of(std::string const& kind, calm_description const& ours, train_options const& o,
                          corpus const& text, stored_model const* autoencoder, recipe_record const& recipe);

// A command line for a shell, without what holds for one call: --fresh and --override.
std::string command_to_go_on(std::vector<std::string> const& words);

// Whether a run has a checkpoint to go on from. Throws errc::storage as run_directory.
bool has_checkpoint(std::string const& directory);
// Of a run its checkpoints and what it told are removed; its model stays until the next one's first checkpoint. Throws
// errc::storage as run_directory.
void start_over(std::string const& directory);

// A run in its directory, begun or gone on with. No other process trains there: where a run is from its making on,
// where none is from begin() on.
class training_run {
public:
    // Finds the checkpoint to go on from, and tells of damaged ones. Throws errc::storage where the path is taken by
    // something else or by another process, or no checkpoint is whole.
    explicit training_run(train_options const& options);
    // Of a run that was to begin, but failed before its first step, nothing stays.
    ~training_run();
    training_run(training_run const&) = delete;
    training_run& operator=(training_run const&) = delete;

    // Compares settings with those that the run was started with. Then the directory is made, or its log cut to where
    // the run goes on. False, and said, where the run is finished already. Throws errc::usage with a table of the
    // settings that differ, unless they are to be taken, and errc::storage where another process began one meanwhile.
    // `holds_out`: text is held out, so a run that is finished was measured at its end. `fits` throws where the model
    // to go on with cannot be read, and is called before anything changes.
    bool begin(recipe_record settings, training_recipe const& recipe, bool holds_out,
               std::function<void()> const& fits);

    // A run that goes on warms up as it was begun, unless --warmup says otherwise: more --steps alone do not change it;
    // nor do more or fewer ranks its micro-batches, unless --accumulation does. Where neither says how many, several
    // ranks have a power of two each.
    void keep_as_begun(training_recipe& recipe) const;

    // The checkpoint to go on from, or nothing.
    [[nodiscard]] std::optional<found_checkpoint> const& from() const { return from_; }
    // Whether a setting is not as it was.
    [[nodiscard]] bool changed(std::string const& option) const;
    [[nodiscard]] run_report& report() { return *report_; }
    // Whether the run is to be measured at its end: text is held out, and no signal ended it. All ranks ask.
    [[nodiscard]] bool tells_end() const;
    // Done, in so many seconds of the whole run.
    [[nodiscard]] index_t steps() const { return steps_; }
    [[nodiscard]] double seconds() const { return seconds_; }

    // Puts the text where the run goes on: in the epoch after, where it is another text or another order.
    void go_on(text_blocks& blocks) const;

    // What the loop is to tell. `write` writes a model directory; `evaluate` measures on held-out text, tells, and
    // returns the score, the highest being the best; `score` only measures. They are called where text is held out, on
    // all ranks, and outlive the callbacks.
    training_callbacks callbacks(training_recipe const& recipe, text_blocks const& blocks,
                                 run_directory::write_model write, std::function<double(progress const&)> evaluate,
                                 std::function<double()> score);

    // Runs the loop. A number that is not finite is told with what to do next.
    void train(std::function<void()> const& loop);

    // The last word: a remark, where there is one, where the model lies and how to go on; the exit status, 0 or 128 +
    // the signal that ended it early.
    int end(std::string_view remark);

private:
    void find();  // the checkpoint to go on from
    // Of several ranks each takes the checkpoint that the first found.
    void take_from_first();
    // What the first rank does, and a process alone: the directory and the log. False where the run is finished
    // already.
    bool open(training_recipe const& recipe, bool holds_out);
    void keep(training_state const& state, text_blocks const& blocks, run_directory::write_model const& write);

    train_options const& options_;
    std::optional<run_directory> directory_;
    std::optional<found_checkpoint> from_;
    std::optional<run_report> report_;
    recipe_record settings_;
    std::vector<recipe_difference> changes_;
    std::optional<double> score_;  // of the present step
    std::optional<double> best_;
    block_position position_;      // after the last step
    index_t steps_ = 0;            // done
    index_t begun_at_ = 0;         // before this call
    double seconds_ = 0;           // that they took
    index_t planned_ = 0;          // or 0, where only time ends the run
    std::optional<index_t> kept_;  // step of the newest checkpoint
    bool made_ = false;            // the directory, by begin()
    bool holds_out_ = false;
};

// What a language model that learns is judged by, besides the tables of its text.
struct learning_levels {
    std::string helps;                    // where it learns no context
    std::optional<scores_beside> beside;  // of an autoregressive model, by seconds
};
// Of a run of a configuration on V tokens; reads the run that --beside names. Throws as read_scores_beside.
learning_levels levels_of(train_options const& o, calm_description const& ours, index_t V);

// Evaluations on held-out text of a run that goes on, told and logged after step `steps`. They return the score by
// which the best checkpoint is known: of an autoencoder its loss, negative, of a language model its BrierLM.
double score_of(autoencoder_evaluation const& e);
double score_of(evaluation const& e);
double told(run_report& report, autoencoder_evaluation const& e, index_t steps);
double told(run_report& report, evaluation const& e, progress const& now, training_recipe const& recipe,
            learning_levels const& levels);
// The same of the whole run, as a table.
void tell_final(run_report& report, autoencoder_evaluation const& e, index_t steps);
void tell_final(run_report& report, evaluation const& e, index_t steps, double seconds, learning_levels const& levels);

// Says, where the autoencoder gives back less than 99 % of held-out tokens with its noise, that no language model on it
// can be better.
void tell_of_autoencoder(run_report& report, autoencoder_evaluation const& e);

// What to say of a model that held out other documents of the same sources, so that what is scored may be what it
// learned; "" of any other. And saying it, on standard error.
std::string another_holdout_sentence(stored_model const& model, data_options const& data);
void tell_of_another_holdout(stored_model const& model, data_options const& data);

// Says how a run of two phases is cut.
void tell_of_patch_level(run_report& report, patch_level const& level);

// Throws errc::usage where --out is the directory of --autoencoder or --init, which are only read.
void refuse_same_directory(train_options const& o);

}  // namespace calm::apps
