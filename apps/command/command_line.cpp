#include "command/command_line.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/sample/temperature.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/detail/text_encoding.hpp"
#include "command/command.hpp"
#include "command/completion.hpp"
#include "command/help.hpp"
#include "command/suggest.hpp"
#include "command/sweep_combinations.hpp"
#include "plugin/chosen_sizes.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/initial_weights.hpp"
#include "run/run_plan.hpp"
#include "run/run_record.hpp"
#include "run/text_plan.hpp"
#include "run/text_record.hpp"
#include "run/text_run.hpp"
#include "run/training_run.hpp"
#include "serve/http_server.hpp"
#include "shipped_model.hpp"
#include "text/generation.hpp"
#include "text/text_data.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

constexpr char const* spec_help =
    "text: files (.txt, .jsonl, .json, also as .gz or .zst), folders or patterns of them, stories:N (about N tokens of "
    "generated stories) or markov:N (N symbols of a Markov chain)";
constexpr char const* or_shipped_help = ", or stories or english, which come with calm";  // after a model's directory

using ends::above_zero;
constexpr auto any_seed = std::numeric_limits<std::uint64_t>::max();
constexpr index_t most_tokens = 1'000'000'000'000'000;  // to train on
constexpr index_t most_kept = 100'000;                  // checkpoints
constexpr index_t most_at_once = 65'536;                // texts

void note_folders_left_out(command& c, std::string const& spec, std::vector<std::string> const& folders) {
    constexpr std::size_t most = 3;
    if (folders.empty()) return;
    std::vector<std::string> named(folders.begin(),
                                   folders.begin() + static_cast<std::ptrdiff_t>(std::min(most, folders.size())));
    if (folders.size() > most) named.push_back(sentence(folders.size() - most, " more"));
    c.note(sentence("--data ", spec, ": skipped ", listed(named), ": files of runs and models are not text"));
}

void add_data(command& c, data_options& data, needed required = needed::yes) {
    c.under(heading::common);
    c.list("--data", data.sources, "SPEC", spec_help, required);
    c.under(heading::data);
    c.parsed("--holdout", "M:R", "hold out every document whose number modulo M is R, for evaluation",
             [&data](std::string const& text) { data.holdout = holdout::parse(text).text(); });
    c.under(heading::data, seldom::yes);
    c.number<std::optional<std::uint64_t>, std::uint64_t>("--data-seed", data.data_seed, "S",
                                                          "seed of the generated text", 0, any_seed);
    c.flag("--skip-bad", data.skip_bad, "skip and count malformed documents, instead of stopping");
    c.check([&data, &c, required] {
        if (required == needed::no && data.sources.empty() &&
            (data.data_seed || data.skip_bad || !data.holdout.empty()))
            c.problem("give --data with --holdout, --data-seed and --skip-bad, which are about its text");
        for (auto const& spec : data.sources) {
            try {
                note_folders_left_out(c, spec, document_source::parse(spec).left_out());
            } catch (error const& wrong) {
                c.problem(std::string("--data ") + wrong.what());
            }
        }
    });
}

// `more` describes the names after the first two.
void add_mode(command& c, data_options& data, std::vector<std::string> const& names = {"padded", "published"},
              std::string const& more = " (the model's, else padded)") {
    c.under(heading::data, seldom::yes);
    c.choice("--mode", names,
             "how documents are packed: padded, with EOS and at every alignment; published, as the published models" +
                 more,
             [&data](std::string const& name) { data.mode = name; });
    c.check([&data, &c] {
        if (!data.mode.empty() && has_own_symbols(data.sources))
            c.problem("--mode: markov:N is an unbroken stream without BOS, EOS and PAD; leave it out");
    });
}

// Warns before the work starts that the exact rule may take minutes per text.
void note_price(command& c, sampler const& rule) {
    if (rule.rule != sampling_rule::exact || rule.max_draws == 1) return;
    c.note(sentence("--sampler exact at T = ", shortest(rule.T), ": up to ", rule.max_draws,
                    " draws per patch, which take seconds; adaptive and batch take at most ", sampler::default_pool,
                    " at T = 1/n, noise takes one"));
}

// Temperature, rule and maximal draws per patch of sampling. A check then requires that the rule suits every model in
// `models` whose config.json can be read.
void add_sampler(command& c, std::function<std::vector<std::string>()> models, std::string& temperature,
                 std::string& rule, index_t& pool, std::string const& colder) {
    c.under(heading::sampling);
    c.parsed("--temperature", "T", "temperature, a decimal or 1/n; lower is less random (" + colder + ")",
             [&](std::string const& text) {
                 temperature.clear();  // stays empty if it is refused
                 parse_temperature(text);
                 temperature = text;
             });
    c.otherwise("--temperature", [standard = temperature] { return standard; });
    c.text("--sampler", rule, "NAME",
           "for a CALM: adaptive, T = 1/n from few draws; batch, T = 1/n from a pool of draws; exact, by rejection "
           "sampling, T above 0 and at most 1, with up to 100000 draws per patch; noise, T from 0 to 1000, by scaled "
           "noise (adaptive). For an autoregressive model: exact, T = 0 or from 1e-100 to 1000 (exact)");
    c.suggest("--sampler", {std::begin(sampling_rule_names), std::end(sampling_rule_names)});
    c.under(heading::sampling, seldom::yes);
    c.number<index_t, index_t>("--pool", pool, "N",
                               "size of the pool of adaptive and batch, the most draws per patch (200)", 1,
                               sampler::limit);
    c.check_whole([&, models = std::move(models)] {
        for (auto const& model : models()) {
            auto const found = description_in(model);
            if (!found || temperature.empty()) continue;
            if (found->kind == model_kind::autoregressive)
                token_sampler_of(rule, temperature);
            else
                note_price(c, sampler_of(rule, temperature, pool));
        }
    });
}

void add_place(command& c, execution_options& o) {
    c.under(heading::devices);
    c.number<int, int>("--threads", o.threads, "N", "number of threads; 0: as many as the machine has (0)", 0, 1024);
    c.compare("--threads", [](std::string const&) { return std::string(); });
    c.parsed("--device", "NAME", "cpu; cuda or cuda:N, an NVIDIA GPU; auto, a GPU if there is one, else cpu (cpu)",
             [&o](std::string const& text) { o.device = device_choice::parse(text); });
    c.suggest("--device", {"cpu", "cuda", "auto"});  // emulated is for tests
    c.compare("--device", [](std::string const& text) { return text.substr(0, text.find(':')); });  // any GPU
    c.otherwise("--device", [] { return device_choice().text(); });
}

void add_execution(command& c, execution_options& o) {
    c.under(heading::common);
    c.number<std::uint64_t, std::uint64_t>("--seed", o.seed, "S", "seed of all random numbers (1)", 0, any_seed);
    add_place(c, o);
}

void add_timeout(command& c, execution_options& o) {
    c.under(heading::devices, seldom::yes);
    c.number<index_t, index_t>(
        "--timeout", o.timeout, "S",
        "with several ranks (docs/ranks.md): seconds that one waits for another while they work (120)", 1, 86'400);
}

// For programs that do not train.
void add_weights(command& c, held_weights& weights) {
    c.under(heading::devices);
    c.choice(
        "--dtype", {"f32", "bf16", "int8"},
        "type of the weights in memory: f32; int8, about a quarter of the memory, on the cpu; or bf16, half the "
        "memory, compiled when it is first used (f32)",
        [&weights](std::string const& name) {
            weights = name == "bf16" ? held_weights::bf16 : name == "int8" ? held_weights::int8 : held_weights::f32;
        });
    c.otherwise("--dtype", [] { return std::string("f32"); });
}

// Refuses an output path that already exists.
void require_free(command& c, std::string const& out) {
    c.check([&c, &out] {
        std::error_code unknown;
        if (!out.empty() && std::filesystem::exists(std::filesystem::symlink_status(out, unknown)))
            c.problem("--out: " + out + " already exists; choose another path, or remove it");
    });
}

void add_out(command& c, std::string& out, std::string const& what) {
    c.under(heading::common);
    c.text("--out", out, "PATH", "where to write " + what + "; must not exist yet", needed::yes);
    require_free(c, out);
}

void add_run(command& c, std::string& out, std::string const& what, bool (*can_hold)(std::string const&)) {
    c.under(heading::common);
    c.text("--out", out, "DIR", "where to write " + what + "; an existing run is resumed", needed::yes);
    c.check([&, can_hold] {
        if (!out.empty() && !can_hold(out))
            c.problem("--out: " + out +
                      " already exists and holds no run to resume; choose another path, or remove it");
    });
}

void check_path(command& c, std::string const& option, std::string const& path, bool folder) {
    std::error_code unknown;
    if (!std::filesystem::exists(path, unknown))
        c.problem(option + ": there is no " + path);
    else if (std::filesystem::is_directory(path, unknown) != folder)
        c.problem(option + ": expected a " + (folder ? "model directory" : "file") + ", " + path + " is not one");
}
// Requires an existing file, or `word` in its place.
void require_file(command& c, std::string const& option, std::string const& path, std::string const& word) {
    c.check([&c, &path, option, word] {
        if (!path.empty() && path != word) check_path(c, option, path, false);
    });
}

// The directory of the model that comes with calm under the name `path`, unless there is a file of that name.
void take_shipped(command& c, std::string& path) {
    std::error_code unknown;
    if (std::filesystem::exists(path, unknown)) return;
    auto const shipped = shipped_model(path);
    if (shipped.empty()) return;
    c.note(path + " is the model that comes with calm: " + shipped);
    path = shipped;
}

// The directory of the stage in a run of `train text`; other paths stay as they are. Returns whether it exists, and
// reports it otherwise: a run may have been stopped before that stage. `hint` ends the message about a wrong path.
bool find_stage(command& c, std::string const& option, std::string& path, char const* stage,
                std::string const& hint = "") {
    auto const given = path;
    path = stage_in(path, stage);
    if (is_there(path)) return true;
    bool const may_never_have_one = std::string_view(stage) == autoencoder_stage;
    if (path == given)
        c.problem(option + ": there is no " + path + hint);
    else
        c.problem(option + ": " + given + " has no " + stage + " yet: its training was stopped before that" +
                  (may_never_have_one ? ", or it is the run of an autoregressive model, which has none; " : "; ") +
                  "repeat its calm train to resume it");
    return false;
}

// `path` names a model's directory, the directory of `train text` that holds the model as `stage`, or a model that
// comes with calm. It becomes the model's directory.
void find_model(command& c, std::string const& option, std::string& path, char const* stage) {
    take_shipped(c, path);
    bool const is_prompt = path.find(' ') != path.npos && !c.hint_of_stray_words().empty();
    auto const hint = did_you_mean(path, shipped_names()) + (is_prompt ? "; " + c.hint_of_stray_words() : "");
    if (find_stage(c, option, path, stage, hint)) check_path(c, option, path, true);
}

// The directory of a model, as find_model. `more` ends the help.
void add_directory(command& c, std::string const& option, std::string& path, char const* stage, std::string const& what,
                   needed need = needed::no, std::string const& more = "") {
    std::string const or_else = std::string_view(stage) == model_stage ? or_shipped_help : "";
    c.text(option, path, "DIR", what + "; also the --out of train" + or_else + more, need);
    c.check([&c, &path, option, stage] {
        if (!path.empty()) find_model(c, option, path, stage);
    });
}
void add_model(command& c, std::string& model, std::string const& what) {
    c.under(heading::common);
    add_directory(c, "--model", model, model_stage, what, needed::yes);
    c.first_words_are("--model");
}

// The model where none is named.
std::string model_by_default(command& c) {
    auto path = story_model();
    c.note("no model is named, so this is the story model that comes with calm: " + path);
    return path;
}
void add_model_or_shipped(command& c, std::string& model, std::string const& what) {
    c.under(heading::common);
    c.check_whole([&c, &model] {
        if (model.empty()) model = model_by_default(c);
    });
    add_directory(c, "--model", model, model_stage, what, needed::no, " (stories)");
    c.first_words_are("--model");
}

std::string default_text(training_recipe const& r) {
    return "learning rate " + six_digits(r.learning_rate) +
           (r.optimizer.muon > 0 ? ", muon " + six_digits(r.optimizer.muon) : "") + ", warm-up " +
           std::to_string(r.warmup) + ", steps " + std::to_string(r.steps);
}

std::string default_text(any_objective const& objective) {
    std::string text;
    for (auto const& number : objective.fields)
        text += ", head-" + std::string(number.field.option) + " " + text_of(number);
    return text;
}

std::string default_text(autoencoder_recipe const& r) {
    return "batch " + std::to_string(r.batch_tokens) + ", " + default_text(static_cast<training_recipe const&>(r)) +
           ", kl-weight " + six_digits(r.objective.kl_weight) + ", random-patches " + six_digits(r.random_patches);
}
std::string default_text(calm_recipe<any_objective> const& r) {
    return "batch " + std::to_string(r.sequences) + ", block " + std::to_string(r.block_tokens) + ", " +
           default_text(static_cast<training_recipe const&>(r)) + default_text(r.objective);
}
std::string default_text(autoregressive_recipe const& r) {
    return "batch " + std::to_string(r.sequences) + ", block " + std::to_string(r.block_tokens) + ", " +
           default_text(static_cast<training_recipe const&>(r)) +
           (r.level.first_phase() > 0 ? ", patch-level " + short_text(r.level) : "");
}

// The kind of model to train.
enum class trained { autoencoder, calm, autoregressive };

// Help text: each configuration's training defaults.
std::string defaults_of(trained kind) {
    std::string text = "Compiled configurations and their defaults:";
    for (auto const& one : compiled_configurations()) {
        if (one.is_autoregressive() != (kind == trained::autoregressive)) continue;
        auto const& all = one.defaults;
        text += "\n  " + one.name + ": " +
                (kind == trained::autoencoder ? default_text(all.autoencoder)
                 : kind == trained::calm      ? default_text(all.calm)
                                              : default_text(all.autoregressive));
    }
    if (kind == trained::autoregressive)
        text += "\n  a published model as --init: " + default_text(recipe_for_published());
    return text + "\nThe default steps apply if neither --steps nor --minutes is given.";
}

std::vector<std::string> configuration_names() {
    std::vector<std::string> names;
    for (auto const& one : compiled_configurations()) names.push_back(one.name);
    return names;
}
std::vector<std::string> configuration_names(trained kind) {
    std::vector<std::string> names;
    for (auto const& one : compiled_configurations())
        if (one.is_autoregressive() == (kind == trained::autoregressive)) names.push_back(one.name);
    return names;
}

entry const& named_for(trained kind, std::string const& name) {
    return kind == trained::autoregressive ? autoregressive_named(name) : calm_named(name);
}

void add_schedule(command& c, std::optional<learning_rate_schedule>& to) {
    c.under(heading::optimizer, seldom::yes);
    c.choice("--schedule", {"constant", "cosine"},
             "learning rate after the warm-up: constant, or cosine over the steps (without --steps, over the time)",
             [&to](std::string const& name) {
                 to = name == "cosine" ? learning_rate_schedule::cosine : learning_rate_schedule::constant;
             });
}

constexpr index_t most_heldout_positions = 1'000'000;  // their tokens are held in memory

// Options of any training except the learning hyperparameters.
void add_upkeep(command& c, train_options& o) {
    c.under(heading::common);
    c.flag("--dry-run", o.dry_run, "print what the run would need, without training or writing");
    c.only_as_flag("--dry-run");
    c.under(heading::checkpoints);
    c.flag("--fresh", o.fresh, "start over if --out holds a run, instead of resuming it");
    c.only_as_flag("--fresh");
    c.flag("--override", o.take_changes, "resume with other settings than the run was started with");
    c.only_as_flag("--override");
    c.under(heading::checkpoints, seldom::yes);
    c.number<std::optional<index_t>, index_t>("--save-every", o.save_every, "N",
                                              "steps between checkpoints (a tenth of the run)", 1, limits::steps);
    c.number<index_t, index_t>("--keep", o.keep, "N", "number of newest checkpoints to keep, besides the best (2)", 1,
                               most_kept);
    c.under(heading::evaluation);
    c.flag("--plot", o.plot, "plot the training curve at the end, as the program plot does");
    c.under(heading::evaluation, seldom::yes);
    c.number<std::optional<index_t>, index_t>("--evaluate-every", o.evaluate_every, "N",
                                              "steps between evaluations on held-out text (a tenth of the run)", 1,
                                              limits::steps);
    c.number<index_t, index_t>("--heldout-positions", o.heldout_positions, "N",
                               "held-out positions to score at the end; earlier evaluations score at most 2/5 of "
                               "them, and fewer if --minutes is below 10 (5000)",
                               1, most_heldout_positions);
    add_timeout(c, o);
    c.under(heading::devices);
    c.choice("--dtype", {"f32", "bf16"},
             "type of the factors of matrix products: f32 or bf16; a GPU then stores activations in bf16 too; sums, "
             "weights and their gradients stay f32 (f32)",
             [&o](std::string const& name) { o.in_bf16 = name == "bf16"; });
    c.otherwise("--dtype", [] { return std::string("f32"); });
    c.under(heading::devices, seldom::yes);
    c.choice("--rounding", {"nearest", "stochastic"},
             "with --dtype bf16, how each step rounds the weights: nearest, or stochastic, up or down so that the mean "
             "is the weight (nearest)",
             [&o](std::string const& name) {
                 o.rounding = name == "stochastic" ? weight_rounding::stochastic : weight_rounding::nearest;
             });
    c.otherwise("--rounding", [] { return std::string("nearest"); });
    c.check_whole([&c, &o] {
        if (o.rounding == weight_rounding::stochastic && !o.in_bf16)
            c.problem("--rounding stochastic: expected --dtype bf16, products of f32 do not round weights");
    });
    c.under(heading::advanced, seldom::yes);
    c.number<index_t, index_t>("--skip-nonfinite", o.skip_nonfinite, "N",
                               "most steps to skip because their loss or gradient is not finite (0)", 0, limits::steps);
    add_execution(c, o);
}

constexpr char const* muon_help =
    "use Muon for hidden matrices, with learning rate X * --learning-rate (0: AdamW for all)";

// Changes sizes of the configurations: their names then contain the changed ones.
void add_sizes(command& c, std::string& sizes, std::function<std::vector<std::string*>()> configurations) {
    c.under(heading::model);
    c.text("--set", sizes, "SIZES",
           "other sizes of the configuration, as patch_size=2,latent_size=16; compiled when they are first used");
    c.check([&c, &sizes, configurations = std::move(configurations)] {
        if (sizes.empty()) return;
        if (sizes.find('=') == std::string::npos) {
            c.problem("--set: expected KEY=VALUE,... as patch_size=2, found '" + sizes + "'");
            return;
        }
        for (auto* const name : configurations())
            if (!name->empty()) *name = name_with_sizes(*name, sizes);
    });
}

void add_training(command& c, train_options& o, trained kind) {
    c.under(heading::common);
    c.text("--config", o.configuration, "NAME", "configuration, see docs/configurations.md", needed::yes);
    c.needed_without("--config", "--init");
    add_sizes(c, o.sizes, [&o] { return std::vector{&o.configuration}; });
    c.check([&c, &o, kind] {
        if (!o.configuration.empty()) named_for(kind, o.configuration);
        if (o.configuration.empty() && !o.sizes.empty() && !o.init.empty())
            c.problem("--set: the model of --init has its own sizes; leave --set out");
    });
    c.suggest("--config", configuration_names(kind));
    c.under(heading::model);
    add_directory(c, "--init", o.init, kind == trained::autoencoder ? autoencoder_stage : model_stage,
                  kind == trained::autoregressive
                      ? "start from the weights of this model, also a published Llama, with its sizes and its tokenizer"
                      : "start from the weights of this model instead of random ones, with its sizes");
    c.under(heading::common);
    c.number<std::optional<index_t>, index_t>("--steps", o.steps, "N", "stop after N steps", 1, limits::steps);
    c.number<std::optional<double>, double>("--minutes", o.minutes, "X", "stop after X minutes, if that is earlier",
                                            above_zero, ends::minutes);
    c.under(heading::optimizer);
    c.number<std::optional<double>, double>("--learning-rate", o.learning_rate, "X", "peak learning rate", above_zero,
                                            ends::learning_rate);
    c.under(heading::optimizer, seldom::yes);
    c.number<std::optional<index_t>, index_t>("--accumulation", o.accumulation, "N",
                                              "micro-batches per step: less memory, the same result", 1,
                                              limits::step_tokens);
    c.number<std::optional<double>, double>("--muon", o.muon, "X", muon_help, 0, ends::muon);
    c.number<std::optional<index_t>, index_t>(
        "--warmup", o.warmup, "N", "warm-up steps until the peak (the configuration's, at most a tenth of --steps)", 0,
        limits::steps);
    add_schedule(c, o.schedule);
    c.check_whole([&] {
        if (o.schedule == learning_rate_schedule::cosine && o.steps && o.warmup && *o.steps <= *o.warmup)
            c.problem("--schedule cosine: expected more --steps than --warmup");
    });
    add_upkeep(c, o);
}

// `calm` for `train calm`.
std::string last_word(std::string const& name) {
    return name.substr(name.rfind(' ') + 1);
}

std::string usage_of_train(std::size_t columns = usual_columns) {
    constexpr std::size_t continued = 4;
    auto const train = called("train");
    auto text = wrapped("Trains a CALM on a text, all at once or stage by stage, or an autoregressive model to compare "
                        "with.",
                        columns);
    std::string before = "Usage: ";
    for (auto const* const each :
         {"SPEC... --out DIR [--minutes M]", "tokenizer --vocabulary V --data SPEC... --out FILE",
          "autoencoder --config NAME --tokenizer FILE --data SPEC... --out DIR",
          "calm --config NAME --autoencoder DIR --data SPEC... --out DIR",
          "ar --config NAME --tokenizer FILE --data SPEC... --out DIR", "ar --init DIR --data SPEC... --out DIR"}) {
        text += wrapped(before + train + " " + each, columns, continued);
        before = "       ";
    }
    return text +
           wrapped("The first trains all that a text needs (" + train + " text); its options are below. " + train +
                       " KIND --help shows the options of tokenizer, autoencoder, calm or ar that are used most, "
                       "KIND --help-all shows all.",
                   columns);
}

template <class Number> std::string text_if_set(Number value) {
    if constexpr (std::is_integral_v<Number>)
        return value > 0 ? std::to_string(value) : "";
    else
        return shortest(value);
}

// Defaults shown for unset training options: the configuration's recipe, adjusted to the options that are set. All are
// from one look at the model of --init.
template <class Recipe> class recipe_defaults {
public:
    recipe_defaults(command& c, train_options const& o, Recipe recipes::*of) : command_(c), options_(o), of_(of) {
        put("--steps", [](Recipe const& r) { return text_if_set(r.steps); });
        put("--accumulation", [](Recipe const& r) { return text_if_set(r.accumulation); });
        put("--learning-rate", [](Recipe const& r) { return text_if_set(r.learning_rate); });
        put("--muon", [](Recipe const& r) { return text_if_set(r.optimizer.muon); });
        put("--warmup", [](Recipe const& r) { return std::to_string(r.warmup); });
        put("--schedule", [](Recipe const& r) {
            return std::string(r.schedule == learning_rate_schedule::cosine ? "cosine" : "constant");
        });
    }
    void put(std::string const& option, std::function<std::string(Recipe const&)> text) {
        command_.otherwise(option, [&o = options_, of = of_, found = found_, text = std::move(text)] {
            if (!*found) *found = defaults_of(o);
            return text(recipe_for(**found.*of, o));
        });
    }

private:
    command& command_;
    train_options const& options_;
    Recipe recipes::*of_;
    std::shared_ptr<std::optional<recipes>> found_ = std::make_shared<std::optional<recipes>>();
};

// The smallest and largest allowed value of a field.
double least_of(number_field const& field) {
    if (!field.without_ends) return field.least;
    return field.least == 0 ? above_zero : std::nextafter(field.least, field.most);
}
double most_of(number_field const& field) {
    return field.without_ends ? std::nextafter(field.most, field.least) : field.most;
}

// Declares --head-OPTION for the fields of all heads, of their objectives or of their sampling.
void add_head_numbers(command& c, head_numbers& head, field_values head_traits::*of) {
    for (auto const* const known : known_heads())
        for (auto const& number : known->*of) {
            auto const& field = number.field;
            auto const [place, is_new] = head.try_emplace(std::string(field.option));
            if (!is_new) continue;
            std::string owners;
            for (auto const* const other : known_heads())
                if (auto const* const theirs = (other->*of).find_option(field.option))
                    owners += (owners.empty() ? "for " : ", ") + std::string(other->name) +
                              (of == &head_traits::sampling ? " (" + calm::text_of(*theirs) + ")" : "");
            std::string const option = "--head-" + place->first, help = owners + ": " + std::string(field.what);
            if (number.whole)
                c.number<std::optional<double>, index_t>(option, place->second, "N", help,
                                                         static_cast<index_t>(field.least),
                                                         static_cast<index_t>(field.most));
            else
                c.number<std::optional<double>, double>(option, place->second, "X", help, least_of(field),
                                                        most_of(field));
        }
}

// Fields of the objectives. A check requires that the configuration's head has each given one.
void add_objective(command& c, head_numbers& head, std::string const& configuration) {
    c.under(heading::optimizer, seldom::yes);
    add_head_numbers(c, head, &head_traits::objective);
    c.check([&] {
        if (configuration.empty()) return;
        auto const& named = configuration_named(configuration);
        if (named.is_autoregressive()) return;  // reported elsewhere
        for (auto const& problem : head_problems(named, head)) c.problem(problem);
    });
}

// Fields of sampling. A check requires that the head of at least one model has each given one.
void add_sampling(command& c, head_numbers& head, std::function<std::vector<std::string>()> models) {
    c.under(heading::sampling, seldom::yes);
    add_head_numbers(c, head, &head_traits::sampling);
    c.check_whole([&, models = std::move(models)] {
        for (auto const& [option, value] : head) {
            if (!value) continue;
            bool has_owner = false;
            for (auto const& model : models()) {
                auto const found = description_in(model);
                has_owner = has_owner || !found;  // its head is unknown
                auto const* const facts = found ? found->head.facts : nullptr;
                auto const* const number = facts == nullptr ? nullptr : facts->sampling.find_option(option);
                if (number == nullptr) continue;
                has_owner = true;
                if (auto const problem = head_problem(number->field, *value, model); !problem.empty())
                    c.problem(problem);
            }
            if (!has_owner) c.problem("--head-" + option + ": the model's head has no such option");
        }
    });
}

// Name and purpose of each command.
template <class Options> struct described;

template <> struct described<text_options> {
    static constexpr char const* name = "train text";
    static constexpr char const* what = "Trains a CALM on a text: vocabulary, autoencoder and language model. It plans "
                                        "every choice from the text and the minutes; each can be set by an option. "
                                        "With the --config of an autoregressive model it trains vocabulary and model.";
};
template <> struct described<tokenizer_options> {
    static constexpr char const* name = "train tokenizer";
    static constexpr char const* what = "Learns a byte-level BPE vocabulary from text.";
};
template <> struct described<train_autoencoder_command> {
    static constexpr char const* name = "train autoencoder";
    static constexpr char const* what = "Trains the autoencoder: K tokens to one vector and back.";
};
template <> struct described<train_calm_command> {
    static constexpr char const* name = "train calm";
    static constexpr char const* what = "Trains the language model on a trained autoencoder.";
};
template <> struct described<train_ar_command> {
    static constexpr char const* name = "train ar";
    static constexpr char const* what = "Trains an autoregressive model: the next token by a softmax.";
};
template <> struct described<evaluate_options> {
    static constexpr char const* name = "evaluate";
    static constexpr char const* what =
        "Measures a model on held-out text: a table on standard error and, if standard output is a file or a pipe, one "
        "JSON object there. Processes started by mpirun, srun or torchrun share the work (docs/ranks.md).";
};
template <> struct described<sweep_options> {
    static constexpr char const* name = "sweep";
    static constexpr char const* what = "Trains and evaluates configurations on one text, each with the same time, "
                                        "tokens or FLOPs: BrierLM and FLOPs by K.";
};
template <> struct described<convert_options> {
    static constexpr char const* name = "convert";
    static constexpr char const* what = "Writes a model in any published layout as safetensors, in another precision "
                                        "or several files if wanted. Prints a table of its tensors.";
};
template <> struct described<inspect_options> {
    static constexpr char const* name = "inspect";
    static constexpr char const* what =
        "Describes a stored model: sizes, parameters, FLOPs, files and what it was trained on.";
};
template <> struct described<tokenize_options> {
    static constexpr char const* name = "tokenize";
    static constexpr char const* what = "Shows the tokens of a text: their ids, and their bytes as text. Or writes the "
                                        "ids of whole files as a NumPy array.";
};
template <> struct described<plot_options> {
    static constexpr char const* name = "plot";
    static constexpr char const* what =
        "Plots the training curve of a run, in its directory: losses and BrierLM by steps, tokens and seconds. Or "
        "writes its metrics for TensorBoard.";
};
template <> struct described<generate_options> {
    static constexpr char const* name = "generate";
    static constexpr char const* what =
        "Continues a prompt: text on standard output, statistics on standard error. Processes started by mpirun, srun "
        "or torchrun share the prompts (docs/ranks.md).";
};

template <> struct described<serve_options> {
    static constexpr char const* name = "serve";
    static constexpr char const* what =
        "Answers completions over HTTP as OpenAI's API does, all requests in one batch, with a page at / that shows "
        "patches and training runs (docs/serve.md).";
};

void declare(command& c, tokenizer_options& o) {
    c.under(heading::model);
    c.number<index_t, index_t>("--vocabulary", o.vocabulary, "V",
                               "number of tokens, including the 256 bytes and 3 special tokens", ends::least_vocabulary,
                               limits::vocabulary, needed::yes);
    add_data(c, o.data);
    add_out(c, o.out, "the vocabulary");
}

// tiktoken's lines do not state it. `owner` is the subject and verb of the help: "the model's lines have".
void add_pattern(command& c, std::string& pattern, std::string const& owner) {
    std::vector<std::string> names;
    for (auto const& one : rank_families) names.emplace_back(one.name);
    c.under(heading::data, seldom::yes);
    c.choice("--pattern", names,
             "published vocabulary whose pattern and special tokens " + owner + " (not needed for Llama 3's own file)",
             [&pattern](std::string const& name) { pattern = name; });
}
void add_pattern_of_tokenizer(command& c, std::string& pattern, std::string const& tokenizer) {
    add_pattern(c, pattern, "a --tokenizer of tiktoken's lines has");
    c.check([&c, &pattern, &tokenizer] {
        if (!pattern.empty() && tokenizer == markov_vocabulary)
            c.problem("--pattern: expected tiktoken's lines as --tokenizer, found " + tokenizer +
                      "; leave --pattern out, or name the file");
    });
}
void add_pattern_of_model(command& c, std::string& pattern) {
    add_pattern(c, pattern, "the model's tiktoken lines have, if its config.json does not describe them");
}

void add_tokenizer(command& c, train_options& o) {
    c.under(heading::common);
    c.text("--tokenizer", o.tokenizer, "FILE", "vocabulary that train tokenizer wrote, or markov for markov:N",
           needed::yes);
    c.needed_without("--tokenizer", "--init");
    c.check([&c, &o] {
        if (has_own_symbols(o.data.sources) && !o.tokenizer.empty() && o.tokenizer != markov_vocabulary)
            c.problem("--tokenizer: the symbols of markov:N are its tokens; give --tokenizer markov");
    });
    require_file(c, "--tokenizer", o.tokenizer, markov_vocabulary);
    add_pattern_of_tokenizer(c, o.pattern, o.tokenizer);
}

// Ends under the heading of the optimizer's options that are seldom used.
void add_autoencoder_numbers(command& c, autoencoder_numbers& o) {
    constexpr double most_dropout = 0.99;  // as ae_dropout of config.json
    c.under(heading::optimizer);
    c.number<std::optional<double>, double>(
        "--random-patches", o.random_patches, "X",
        "share of the autoencoder's patches that are random tokens, 0.15 for real text", 0, 1);
    c.under(heading::optimizer, seldom::yes);
    c.number<std::optional<double>, double>("--kl-weight", o.kl_weight, "X",
                                            "weight of the KL divergence in the autoencoder's loss", 0, limits::weight);
    c.number<std::optional<double>, double>(
        "--kl-clamp", o.kl_clamp, "X", "nats per latent dimension below which the KL divergence has no gradient (0.5)",
        0, limits::weight);
    c.number<std::optional<double>, double>("--dropout", o.dropout, "X",
                                            "the autoencoder's dropout of tokens and latents in training (0.15)", 0,
                                            most_dropout);
}

void declare(command& c, train_autoencoder_command& o) {
    add_tokenizer(c, o);
    add_data(c, o.data);
    add_mode(c, o.data);
    add_run(c, o.out, "the model", run_directory::can_hold);
    c.under(heading::optimizer);
    c.number<std::optional<index_t>, index_t>("--batch", o.batch, "N", "tokens per step", 1, limits::step_tokens);
    add_autoencoder_numbers(c, o.of_autoencoder);
    add_training(c, o, trained::autoencoder);
    recipe_defaults<autoencoder_recipe> defaults(c, o, &recipes::autoencoder);
    defaults.put("--batch", [](auto const& r) { return text_if_set(r.batch_tokens); });
    defaults.put("--kl-weight", [](auto const& r) { return text_if_set(r.objective.kl_weight); });
    defaults.put("--kl-clamp", [](auto const& r) { return text_if_set(r.objective.kl_clamp); });
    defaults.put("--dropout", [](auto const& r) { return text_if_set(r.objective.dropout); });
    defaults.put("--random-patches", [](auto const& r) { return text_if_set(r.random_patches); });
    c.appendix("the defaults of the configurations", defaults_of(trained::autoencoder));
}

// Options of language models of either kind.
void add_language_model(command& c, train_options& o) {
    add_data(c, o.data);
    add_mode(c, o.data);
    add_run(c, o.out, "the model", run_directory::can_hold);
    c.under(heading::optimizer);
    c.number<std::optional<index_t>, index_t>("--batch", o.batch, "N", "sequences per step", 1, limits::step_tokens);
    c.under(heading::data);
    c.number<std::optional<index_t>, index_t>("--block", o.block, "N", "tokens per sequence", 1, limits::block_tokens);
}
// `run` names a directory that train wrote; of one by `train text`, it becomes the language model's.
void find_run(command& c, std::string const& option, std::string& run) {
    if (find_stage(c, option, run, model_stage) && !is_there(in_directory(run, metrics_file)))
        c.problem(option + ": expected the directory of a run, " + run + " has no " + metrics_file);
}
void add_sample_prompt(command& c, train_options& o) {
    c.under(heading::evaluation, seldom::yes);
    c.text("--sample-prompt", o.sample_prompt, "TEXT",
           "prompt of the texts that every evaluation writes to samples.jsonl (empty)");
    c.may_be_empty("--sample-prompt");
}
// Options that monitor learning.
void add_measures(command& c, train_options& o) {
    c.under(heading::evaluation, seldom::yes);
    c.text("--baseline", o.baseline, "DIR",
           "run of an autoregressive model on the same text, also the --out of train: also report its scores after the "
           "same training time");
    c.check([&] {
        if (!o.baseline.empty()) find_run(c, "--baseline", o.baseline);
    });
    add_sample_prompt(c, o);
}

void declare(command& c, train_ar_command& o) {
    add_tokenizer(c, o);
    add_language_model(c, o);
    c.under(heading::optimizer);
    c.parsed("--patch-level", "K:SHARE",
             "begin with positions of K tokens, for this share of all tokens: costs less (docs/mathematics.md)",
             [&o](std::string const& text) { o.level = patch_level::parse(text); });
    add_training(c, o, trained::autoregressive);
    add_measures(c, o);
    recipe_defaults<autoregressive_recipe> defaults(c, o, &recipes::autoregressive);
    defaults.put("--batch", [](auto const& r) { return text_if_set(r.sequences); });
    defaults.put("--block", [](auto const& r) { return text_if_set(r.block_tokens); });
    defaults.put("--patch-level", [](auto const& r) { return r.level.first_phase() > 0 ? r.level.text() : ""; });
    c.appendix("the defaults of the configurations", defaults_of(trained::autoregressive));
}

void declare(command& c, train_calm_command& o) {
    c.under(heading::common);
    add_directory(c, "--autoencoder", o.autoencoder, autoencoder_stage, "model that train autoencoder wrote",
                  needed::yes);
    add_pattern_of_model(c, o.pattern);
    add_language_model(c, o);
    add_objective(c, o.head, o.configuration);
    add_training(c, o, trained::calm);
    add_measures(c, o);
    recipe_defaults<calm_recipe<any_objective>> defaults(c, o, &recipes::calm);
    defaults.put("--batch", [](auto const& r) { return text_if_set(r.sequences); });
    defaults.put("--block", [](auto const& r) { return text_if_set(r.block_tokens); });
    for (auto const& [option, value] : o.head)
        defaults.put("--head-" + option, [option = option](auto const& r) {
            auto const* const number = r.objective.fields.find_option(option);
            return number == nullptr ? "" : calm::text_of(*number);
        });
    c.appendix("the defaults of the configurations", defaults_of(trained::calm));
}

void declare(command& c, text_options& o) {
    add_data(c, o.data);
    c.first_words_are("--data");
    add_mode(c, o.data);
    add_run(c, o.out, "plan.json, tokenizer.model, autoencoder and model", can_hold_text_run);
    auto& choices = o.choices;
    c.under(heading::common);
    c.text("--config", choices.configuration, "NAME", "configuration, see docs/configurations.md");
    add_sizes(c, o.sizes, [&choices] { return std::vector{&choices.configuration}; });
    c.check([&c, &o] {
        if (!o.sizes.empty() && o.choices.configuration.empty()) c.problem("--set: give the --config that it changes");
    });
    c.check([&choices] {
        if (!choices.configuration.empty()) configuration_named(choices.configuration);
    });
    c.suggest("--config", configuration_names());
    each_number(choices, [&]<class Number>(number_choice<Number> const& one, std::optional<Number>& place) {
        c.under(one.under, one.used);
        c.number<std::optional<Number>, Number>(std::string("--") + one.option, place, one.type, one.help, one.least,
                                                one.most);
    });
    c.check([&c, &o] {
        if (has_own_symbols(o.data.sources) && o.choices.vocabulary)
            c.problem("--vocabulary: the symbols of markov:N are its tokens; leave it out");
    });
    add_schedule(c, choices.schedule);
    c.under(heading::optimizer, seldom::yes);
    add_head_numbers(c, choices.head, &head_traits::objective);
    c.check([&c, &choices] {
        if (choices.configuration.empty()) return;
        for (auto const& problem : choice_problems(configuration_named(choices.configuration), choices))
            c.problem(problem);
    });
    add_upkeep(c, o);
    add_sample_prompt(c, o);
    c.footer("Options that are not set are planned; --dry-run prints the plan with its reasons.");
}

void declare(command& c, evaluate_options& o) {
    c.repeated("--model", o.models, "DIR",
               std::string("model that train wrote") + or_shipped_help +
                   "; repeat the option to compare several (stories)");
    c.first_words_are("--model");
    c.check_whole([&c, &o] {
        if (o.models.empty()) o.models = {model_by_default(c)};
    });
    c.check([&c, &o] {
        for (auto& model : o.models) find_model(c, "--model", model, model_stage);
    });
    add_data(c, o.data);
    c.under(heading::common);
    c.flag("--json", o.json, "print the JSON on a terminal too");
    c.under(heading::data);
    c.number<index_t, index_t>("--block", o.block, "N", "tokens per block; BrierLM depends on it (as in training)", 1,
                               limits::block_tokens);
    c.under(heading::evaluation);
    c.number<index_t, index_t>("--samples", o.samples, "N", "samples per position (8)", 2, limits::samples);
    c.number<index_t, index_t>("--positions", o.positions, "N", "score a random subset of N positions (all)", 1,
                               most_tokens);
    add_mode(c, o.data, {"padded", "published", "unbroken"},
             "; unbroken, without BOS, EOS and PAD, for an autoregressive model (the model's, else padded, or unbroken "
             "if the prompts of a published model do not begin with BOS)");
    add_sampler(
        c, [&o] { return o.models; }, o.temperature, o.sampler, o.pool, "1");
    add_sampling(c, o.head, [&o] { return o.models; });
    add_pattern_of_model(c, o.pattern);
    add_timeout(c, o);
    add_weights(c, o.weights);
    add_execution(c, o);
}

void declare(command& c, sweep_options& o) {
    c.list("--configs", o.configurations, "NAME", "configurations to compare, as tiny or tiny:patch_size=2");
    add_sizes(c, o.sizes, [&o] {
        std::vector<std::string*> names;
        for (auto& name : o.configurations) names.push_back(&name);
        return names;
    });
    c.under(heading::common);
    c.suggest("--configs", configuration_names());
    c.check([&] {
        for (auto const& name : o.configurations) configuration_named(name);
    });
    c.text("--tokenizer", o.tokenizer, "FILE", "vocabulary that train tokenizer wrote, or markov for markov:N",
           needed::yes);
    require_file(c, "--tokenizer", o.tokenizer, markov_vocabulary);
    add_pattern_of_tokenizer(c, o.pattern, o.tokenizer);
    add_data(c, o.data);
    c.under(heading::common);
    c.text("--out", o.out, "DIR", "where to write models, sweep.tsv and sweep.svg; an existing sweep is resumed",
           needed::yes);
    c.check([&c, &o] {
        if (o.out.empty()) return;
        if (!run_directory::can_hold(o.out) && !is_there(in_directory(o.out, run_file)))
            c.problem("--out: " + o.out +
                      " already exists and holds no sweep to resume; choose another path, or remove it");
        else if (run_directory::holds_run(o.out))
            c.problem("--out: " + o.out + " holds the run of one model; choose another path");
    });
    c.number<std::optional<double>, double>("--autoencoder-minutes", o.autoencoder_minutes, "X",
                                            "training minutes of each autoencoder", above_zero, ends::minutes);
    c.number<std::optional<double>, double>("--minutes", o.minutes, "X", "training minutes of each language model",
                                            above_zero, ends::minutes);
    c.number<std::optional<index_t>, index_t>("--autoencoder-tokens", o.autoencoder_tokens, "N",
                                              "training tokens of each autoencoder", 1, most_tokens);
    c.number<std::optional<index_t>, index_t>("--tokens", o.tokens, "N", "training tokens of each language model", 1,
                                              most_tokens);
    c.number<std::optional<double>, double>("--teraflops", o.teraflops, "X",
                                            "train each model with X * 10^12 FLOPs, counted as --count says",
                                            above_zero, 1e7);
    c.repeated(
        "--vary", o.vary, "NAME=V,...",
        "train with each of these values of an option (learning-rate, muon, block, kl-weight, kl-clamp, dropout, "
        "random-patches, head-...) or of a size, as head-samples=2,4,8 or patch_size=1,2,4; repeat the option to "
        "combine several");
    c.stray_words_are("repeat --vary for several options");
    c.text("--seeds", o.seeds, "S,...", "train with each of these seeds; the mean scores are printed too");
    c.check([&o] { varied_values_of(o); });
    c.under(heading::common, seldom::yes);
    c.choice("--count", {"all", "paper"},
             "what --teraflops counts: all, every matrix product of training, including the autoencoder and Muon; "
             "paper, those of the language model only, as in the CALM paper (all)",
             [&o](std::string const& name) { o.counts_all = name == "all"; });
    c.otherwise("--count", [] { return std::string("all"); });
    c.check_whole([&] {
        if (o.minutes.has_value() + o.tokens.has_value() + o.teraflops.has_value() != 1)
            c.problem("give exactly one of --minutes, --tokens, --teraflops");
        bool const needs_autoencoder =
            std::any_of(o.configurations.begin(), o.configurations.end(),
                        [](auto const& name) { return !configuration_named(name).is_autoregressive(); });
        int const given = o.autoencoder_minutes.has_value() + o.autoencoder_tokens.has_value();
        if (given > 1 || (given == 0 && needs_autoencoder))
            c.problem("give exactly one of --autoencoder-minutes, --autoencoder-tokens");
    });
    c.under(heading::data);
    c.number<std::optional<index_t>, index_t>("--block", o.block, "N", "tokens per block, for all configurations (256)",
                                              1, limits::block_tokens);
    c.under(heading::optimizer);
    c.number<std::optional<double>, double>("--learning-rate", o.learning_rate, "X",
                                            "peak learning rate of the language models", above_zero,
                                            ends::learning_rate);
    add_autoencoder_numbers(c, o.of_autoencoder);
    c.number<std::optional<double>, double>("--muon", o.muon, "X", muon_help, 0, ends::muon);
    add_head_numbers(c, o.head, &head_traits::objective);
    c.check([&] {
        for (auto const& name : o.configurations)
            for (auto const& problem : head_problems(configuration_named(name), o.head)) c.problem(problem);
    });
    c.under(heading::evaluation);
    c.number<index_t, index_t>("--samples", o.samples, "N", "samples per position in evaluation (8)", 2,
                               limits::samples);
    c.number<index_t, index_t>("--positions", o.positions, "N", "score a random subset of N positions (all)", 1,
                               most_tokens);
    add_execution(c, o);
}

void declare(command& c, convert_options& o) {
    constexpr std::uint64_t most_shard = 1'000'000'000'000'000;
    add_model(c, o.model, "model in any published layout");
    add_directory(c, "--autoencoder", o.autoencoder, autoencoder_stage,
                  "for a CALM that does not contain its autoencoder: where that is, instead of ae_path of config.json");
    add_out(c, o.out, "the model");
    c.choice("--dtype", {"f32", "bf16", "f16", "int8"},
             "precision of the weights: f32, bf16, f16, or int8 for matrices, with a scale per 32 weights (as stored)",
             [&o](std::string const& name) { o.dtype = name; });
    c.number<std::uint64_t, std::uint64_t>("--shard-size", o.shard_bytes, "BYTES",
                                           "most bytes of tensors per file (5000000000)", 1, most_shard);
}

void declare(command& c, inspect_options& o) {
    add_model_or_shipped(c, o.model, "model in any published layout");
    add_pattern_of_model(c, o.pattern);
}

void declare(command& c, tokenize_options& o) {
    c.text("--tokenizer", o.tokenizer, "PATH",
           std::string("vocabulary (tokenizer.model or tokenizer.json), the model's directory that holds it, or the "
                       "--out of train") +
               or_shipped_help,
           needed::yes);
    c.first_words_are("--tokenizer");
    c.check([&c, &o] {
        take_shipped(c, o.tokenizer);
        std::error_code unknown;
        if (!o.tokenizer.empty() && !std::filesystem::exists(o.tokenizer, unknown))
            c.problem("--tokenizer: there is no " + o.tokenizer + did_you_mean(o.tokenizer, shipped_names()));
    });
    add_pattern_of_tokenizer(c, o.pattern, o.tokenizer);
    c.under(heading::common);
    c.repeated("--text", o.texts, "TEXT", "text; - reads standard input; repeat the option for more texts (-)");
    c.may_be_empty("--text");
    c.choice(
        "--format", {"table", "ids", "json", "latents"},
        "table, one token per line: id, tab, its text in quotes; ids, the ids of a text on one line; json, "
        "{\"ids\": [...], \"tokens\": [...]} on one line; latents, the latent vector of each patch, by the model's "
        "autoencoder, as {\"ids\": [...], \"patch_size\": K, \"latents\": [[...], ...]} (table)",
        [&o](std::string const& format) { o.format = format; });
    c.otherwise("--format", [] { return std::string("table"); });
    c.stray_words_are("give a text as --text TEXT");
    add_data(c, o.data, needed::no);
    c.under(heading::common);
    c.text("--out", o.out, "FILE",
           "write the ids of --data as a NumPy array of int32, with EOS after each document; must not exist yet");
    require_free(c, o.out);
    c.check([&c, &o] {
        if (std::count(o.texts.begin(), o.texts.end(), "-") > 1)
            c.problem("standard input can be read only once: give --text - once");
        if (o.out.empty() != o.data.sources.empty()) c.problem("give --data and --out together, or --text");
        if (!o.out.empty() && !o.texts.empty()) c.problem("give either --text, or --data and --out");
        if (!o.out.empty() && o.format != "table")
            c.problem("give --format with --text: --out is a NumPy array of ids");
    });
}

void declare(command& c, plot_options& o) {
    c.list("--run", o.runs, "DIR", "directories that train wrote; plot DIR works too");
    c.first_words_are("--run");
    c.check([&] {
        for (auto& run : o.runs) find_run(c, "--run", run);
    });
    c.choice("--format", {"svg", "png", "tensorboard"},
             "svg, a picture curve.svg; png, a picture curve.png, which needs gnuplot; tensorboard, an event file of "
             "all metrics, which tensorboard --logdir DIR shows (svg)",
             [&o](std::string const& format) { o.format = format; });
    c.otherwise("--format", [] { return std::string("svg"); });
}

void declare(command& c, generate_options& o) {
    add_model_or_shipped(c, o.model, "language model in any published layout");
    c.repeated("--prompt", o.prompts, "TEXT",
               "prompt, - reads standard input; repeat the option for more texts (empty)");
    c.may_be_empty("--prompt");
    c.under(heading::data);
    c.text("--prompts", o.prompts_file, "FILE", "file with one prompt per line; - reads standard input");
    require_file(c, "--prompts", o.prompts_file, "-");
    c.text("--jsonl", o.jsonl, "FILE",
           "file with one {\"id\": ..., \"prompt\": \"...\"} per line, answered by such lines; - reads standard input");
    require_file(c, "--jsonl", o.jsonl, "-");
    c.under(heading::common);
    c.text("--out", o.out, "PATH", "where to write the answers to --jsonl (standard output); must not exist yet");
    require_free(c, o.out);
    c.stray_words_are("give a prompt as --prompt TEXT");
    c.check_whole([&c, &o] {
        if (!o.out.empty() && o.jsonl.empty()) c.problem("--out is for the answers to --jsonl");
    });
    c.check([&c, &o] {
        if (!o.jsonl.empty() && !(o.prompts.empty() && o.prompts_file.empty()))
            c.problem("--jsonl already has the prompts: leave --prompt and --prompts out");
        auto const readers = std::count(o.prompts.begin(), o.prompts.end(), "-") + (o.prompts_file == "-" ? 1 : 0);
        if (readers > 1) c.problem("standard input can be read only once: give - once to --prompt or --prompts");
    });
    add_sampler(
        c, [&o] { return std::vector{o.model}; }, o.temperature, o.sampler, o.pool, "1/2");
    add_sampling(c, o.head, [&o] { return std::vector{o.model}; });
    c.under(heading::sampling);
    c.number<index_t, index_t>("--top-k", o.top_k, "N",
                               "autoregressive models: sample only the N most likely tokens (all)", 1,
                               limits::vocabulary);
    c.number<double, double>(
        "--top-p", o.top_p, "X",
        "autoregressive models: sample only the most likely tokens whose probabilities sum to X (1)", above_zero, 1);
    c.check_whole([&] {
        auto const found = description_in(o.model);
        if ((o.top_k > 0 || o.top_p < 1) && found && found->kind != model_kind::autoregressive)
            c.problem("--top-k and --top-p need the probabilities of tokens, which a CALM does not know: use a "
                      "--temperature below 1");
    });
    c.under(heading::data, seldom::yes);
    add_pattern_of_model(c, o.pattern);
    c.choice("--padding", {"left", "right"},
             "side on which a prompt is padded to whole patches: left, or right as published (left)",
             [&o](std::string const& side) { o.pad_left = side == "left"; });
    c.otherwise("--padding", [] { return std::string("left"); });
    c.under(heading::common);
    c.number<index_t, index_t>("--max-tokens", o.max_tokens, "N", "most tokens to generate per text (200)", 1,
                               limits::text_tokens);
    c.repeated("--stop", o.stop, "STRING",
               "end a text before STRING, which is not printed; repeat the option for several; $'\\n' is a line end in "
               "bash");
    c.check([&c, &o] {
        for (auto const& text : o.stop)
            if (auto const fault = fault_of_encoding(text))
                c.problem(sentence("--stop: byte ", fault->byte, ": ", fault->sentence));
    });
    c.under(heading::devices, seldom::yes);
    c.number<index_t, index_t>("--at-once", o.at_once, "N",
                               "texts generated at the same time: more is faster and takes more memory (16)", 1,
                               most_at_once);
    add_timeout(c, o);
    add_weights(c, o.weights);
    add_execution(c, o);
}

void declare(command& c, serve_options& o) {
    c.under(heading::common);
    add_directory(c, "--model", o.model, model_stage, "language model in any published layout", needed::no,
                  " (stories, unless --run is given)");
    c.first_words_are("--model");
    c.text("--run", o.run, "DIR", "the --out of train, to show its training on the page");
    c.check_whole([&c, &o] {
        if (o.model.empty() && o.run.empty()) o.model = model_by_default(c);
    });
    c.text("--host", o.host, "ADDRESS", "address to listen on; another than loopback needs --api-key (127.0.0.1)");
    c.number<index_t, index_t>("--port", o.port, "N", "port to listen on; 0: any free one (8080)", 0, 65'535);
    c.text("--api-key", o.api_key, "KEY",
           "key that clients must send as Authorization: Bearer KEY; better given as the variable CALM_API_KEY");
    c.flag("--insecure", o.insecure, "listen on any address without a key");
    c.check_whole([&c, &o] {
        if (o.api_key.empty() && !o.insecure && !is_loopback(o.host))
            c.problem("--host " + o.host +
                      " can be reached by others: expected --api-key KEY, or --insecure to serve them without one");
    });
    c.under(heading::sampling, seldom::yes);
    c.number<index_t, index_t>("--pool", o.pool, "N",
                               "size of the pool of adaptive and batch, the most draws per patch (200)", 1,
                               sampler::limit);
    c.under(heading::data, seldom::yes);
    add_pattern_of_model(c, o.pattern);
    c.under(heading::advanced);
    c.text("--name", o.name, "NAME", "name of the model for clients (that of its directory)");
    c.number<index_t, index_t>("--context", o.context, "N",
                               "most tokens of a prompt and its completion (the model's, at most 8192)", 1,
                               limits::text_tokens);
    c.number<index_t, index_t>("--queue", o.queue, "N", "texts that wait; more are refused with status 429 (1024)", 1,
                               most_at_once);
    c.number<index_t, index_t>("--rate-limit", o.rate, "N",
                               "completions per second from one address, twice as many at once; more are refused with "
                               "status 429; 0: any number (0)",
                               0, most_at_once);
    c.number<index_t, index_t>("--drain", o.drain, "S",
                               "seconds that texts under way have to end after SIGTERM or Ctrl-C (30)", 0, 86'400);
    c.under(heading::devices);
    c.number<index_t, index_t>("--at-once", o.at_once, "N",
                               "texts generated at the same time: more is faster and takes more memory (64)", 1,
                               most_at_once);
    add_weights(c, o.weights);
    add_place(c, o);
}

template <class Options> std::optional<Options> read_command(int argc, char const* const* argv) {
    Options o;
    command c(described<Options>::name, described<Options>::what);
    declare(c, o);
    if (!c.read(argc, argv)) return std::nullopt;
    if constexpr (requires { o.rank_settings; }) o.rank_settings = c.settings();
    if constexpr (requires { o.record; }) {
        o.record.options = c.resolved();
        o.record.words = words_that_start(c.name());
        o.record.words.insert(o.record.words.end(), argv, argv + argc);
    }
    return o;
}

// The completion of one command.
template <class Options> completed_command completed() {
    Options o;
    command c(described<Options>::name, described<Options>::what);
    declare(c, o);
    return {last_word(c.name()), c.options()};
}

template <class... Options> struct list_of_commands {
    static std::vector<std::string> names() { return {last_word(described<Options>::name)...}; }
    static std::vector<std::string> whole_names() { return {described<Options>::name...}; }
    static std::vector<completed_command> all() { return {completed<Options>()...}; }
};
using commands_of_train =
    list_of_commands<text_options, tokenizer_options, train_autoencoder_command, train_calm_command, train_ar_command>;
using all_commands = list_of_commands<text_options, tokenizer_options, train_autoencoder_command, train_calm_command,
                                      train_ar_command, evaluate_options, sweep_options, generate_options,
                                      convert_options, inspect_options, tokenize_options, plot_options, serve_options>;

}  // namespace

std::vector<completed_command> every_command() {
    return all_commands::all();
}

std::string completion_of_calm() {
    auto commands = all_commands::all();
    auto const names = all_commands::whole_names();
    for (std::size_t i = 0; i < names.size(); ++i) commands[i].word = names[i];
    // `train my.txt` has the options of `train text`. Its case comes after those of the commands of train.
    auto of_text = commands.front();
    of_text.word = "train";
    commands.insert(commands.begin() + static_cast<std::ptrdiff_t>(commands_of_train::names().size()), of_text);
    return bash_completion("calm", commands);
}

std::vector<std::string> names_of_all_commands() {
    return all_commands::names();
}

std::vector<std::string> options_of_all_programs() {
    std::vector<std::string> names;
    for (auto const& one : all_commands::all())
        for (auto const& option : one.options)
            if (option.is_kept) names.push_back(option.name);
    return names;
}

// Whether the first word of train is a text or an option of `train text`, and not one of its commands.
bool names_text(std::string const& word) {
    auto const kinds = commands_of_train::names();
    if (word.empty() || std::find(kinds.begin(), kinds.end(), word) != kinds.end()) return false;
    if (word.starts_with("--")) return true;
    std::error_code unknown;
    return std::filesystem::exists(word, unknown) || word.find_first_of("*?[:/.") != std::string::npos;
}

std::optional<train_command> read_train(int argc, char const* const* argv) {
    auto const kinds = commands_of_train::names();
    std::string const kind = argc > 1 ? argv[1] : "";
    if (kind == "--help" || kind == "--help-all" || kind == "-h") {
        text_options o;
        command of_text(described<text_options>::name, described<text_options>::what);
        declare(of_text, o);
        auto const columns = columns_of_help();
        text_output().put(usage_of_train(columns) + "\n" + of_text.help(kind == "--help-all", columns));
        return std::nullopt;
    }
    if (kind == "--version") {
        text_output().put(version_line("train"));
        return std::nullopt;
    }
    if (asks_for_completion({argv, argv + argc})) {
        auto commands = commands_of_train::all();
        commands.push_back({"", commands.front().options});  // `train my.txt` has the options of `train text`
        text_output().put(bash_completion("train", commands));
        return std::nullopt;
    }
    auto const read = [&]<class Options>(Options const&, int first = 2) {
        auto o = read_command<Options>(argc - first, argv + first);
        if constexpr (requires { o->record; })
            if (o) {
                o->record.words = words_that_start(argv[0]);
                o->record.words.insert(o->record.words.end(), argv + 1, argv + argc);
            }
        return o ? std::optional<train_command>(std::move(*o)) : std::nullopt;
    };
    // `train my.txt --out mine` is `train text --data my.txt --out mine`.
    if (names_text(kind)) return read(text_options{}, 1);
    if (kind == kinds[0]) return read(text_options{});
    if (kind == kinds[1]) return read(tokenizer_options{});
    if (kind == kinds[2]) return read(train_autoencoder_command{});
    if (kind == kinds[3]) return read(train_calm_command{});
    if (kind == kinds[4]) return read(train_ar_command{});
    throw error(errc::usage,
                kind.empty() ? "expected a text or one of " + listed(kinds) + ", found none"
                             : "expected a text or one of " + listed(kinds) + ", found '" + kind +
                                   "', and there is no such file" + did_you_mean(kind, kinds),
                lines_of(usage_of_train()));
}

template <class Options> std::optional<Options> read_options(int argc, char const* const* argv) {
    return read_command<Options>(argc - 1, argv + 1);
}
template std::optional<evaluate_options> read_options(int, char const* const*);
template std::optional<sweep_options> read_options(int, char const* const*);
template std::optional<plot_options> read_options(int, char const* const*);
template std::optional<generate_options> read_options(int, char const* const*);
template std::optional<serve_options> read_options(int, char const* const*);
template std::optional<convert_options> read_options(int, char const* const*);
template std::optional<inspect_options> read_options(int, char const* const*);
template std::optional<tokenize_options> read_options(int, char const* const*);

}  // namespace calm::apps
