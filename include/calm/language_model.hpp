#pragma once
/// \file
/// A CALM in one object: train it on documents, generate, save, load. It holds only what a program could hold itself: a
/// context, a tokenizer, the encoded text and a model. For a GPU also include calm/cuda.hpp, in a file that nvcc
/// compiles. For several processes, checkpoints or other recipes use the layer below: calm/train.hpp, calm/io.hpp and
/// calm/runs.hpp. Links libpcre2-8, simdjson, zlib and zstd; needs nlohmann-json.
/// \shows{examples/01_first_model.cpp}

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/number_text.hpp"
#include "calm/io/describe_model.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/model/presets.hpp"
#include "calm/runs/detail/model_placement.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/runs/run_directory.hpp"
#include "calm/sample/generate.hpp"
#include "calm/sample/stop_strings.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/packed_blocks.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/read_text.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/train/loop.hpp"
#include "calm/train/session.hpp"
#include "calm/train/text_recipes.hpp"

namespace calm {

/// Settings of a new language_model.
struct language_model_options {
    /// Vocabulary size V, learned from the text; at least tokenizer::byte_vocabulary, 259. With 512 a token has about
    /// two bytes.
    token_id vocabulary = 512;
    std::uint64_t seed = 1;  ///< of the initial weights and of training
    int threads = 0;         ///< 0: one per hardware thread; unused on a GPU
};

/// Settings of a loaded language_model.
struct load_options {
    std::uint64_t seed = 1;    ///< of further training
    int threads = 0;           ///< 0: all of the machine's; unused on a GPU
    std::string pattern = {};  ///< as in load_tokenizer: for tiktoken's lines that config.json does not describe
};

/// Progress of language_model::train.
struct training_report {
    std::string_view model;  ///< "autoencoder" or "language model"
    progress now;            ///< its last step
};

/// One line: "language model  step 250  loss 10.312  90 s left".
inline std::string to_string(training_report const& report) {
    std::string line = sentence(report.model, "  step ", report.now.step + 1, "  loss ", six_digits(report.now.loss));
    if (std::isfinite(report.now.seconds_left))
        line += sentence("  ", static_cast<std::int64_t>(std::ceil(report.now.seconds_left)), " s left");
    return line;
}

/// Length and reports of language_model::train. Give the minutes, or the steps of both models. With steps, equal seeds
/// give equal weights.
struct language_model_training {
    /// Of both models. A quarter of it, at most 4 minutes, trains the autoencoder if that is not trained yet.
    double minutes = 0;
    index_t autoencoder_steps = 0;  ///< only for a model without a trained autoencoder
    index_t steps = 0;              ///< of the language model
    /// True for text of a grammar, such as stories: the autoencoder is then not trained on random patches, and blocks
    /// are longer.
    bool is_generated = false;
    std::function<void(training_report const&)> log = {};  ///< called about ten times per model
    std::function<bool()> stop = {};  ///< true ends the training, after at most one more step (on a GPU, ten)
};

/// A temperature from a number or from text: 0.5, "0.5" or "1/2".
struct temperature_choice : temperature {
    /// From a number of at least 0. Throws errc::usage for another one.
    template <class Number>
    requires std::is_arithmetic_v<Number> temperature_choice(Number T) : temperature(of(static_cast<double>(T))) {}
    /// From a decimal or 1/n, as parse_temperature. Throws errc::usage for other text.
    temperature_choice(char const* text) : temperature(parse_temperature(text)) {}
    /// From a decimal or 1/n.
    temperature_choice(std::string const& text) : temperature(parse_temperature(text)) {}
    /// From a temperature.
    temperature_choice(temperature T) : temperature(T) {}
};

/// Settings of language_model::generate.
struct generation_options {
    temperature_choice temperature = 0.5;             ///< the adaptive and the batch rule take only 1/n
    sampling_rule sampler = sampling_rule::adaptive;  ///< how patches are drawn at the temperature (docs/samplers.md)
    index_t max_tokens = 256;                         ///< new tokens, unless the text ends before
    std::uint64_t seed = 1;                           ///< of all draws
    std::vector<std::string> stop = {};               ///< the text ends before the first of these strings
    std::function<bool(std::string_view)> on_text =
        {};  ///< receives new text, whole characters; false ends the generation
};

/// What language_model::generate returns.
struct generated_text : generation_result {
    std::string text;  ///< the continuation, without the prompt and the stop string: all tokens as text
    std::string stop;  ///< the stop string that ended the text, or empty
};

namespace detail {

// The text of generate(on_tokens), whose on_tokens receives new tokens and says whether the text continues.
template <class Generate>
generated_text text_of_generation(tokenizer const& t, generation_options const& o, Generate const& generate) {
    stop_strings const stops(o.stop);
    stopped_text until_stop(stops);
    auto const pass_on = [&](std::string const& more) { return more.empty() || !o.on_text || o.on_text(more); };
    generated_text made{generate([&](std::span<token_id const> tokens) {
                            return pass_on(until_stop.push(t.decode(tokens))) && until_stop.stop() == nullptr;
                        }),
                        {},
                        {}};
    static_cast<void>(pass_on(until_stop.flush()));
    auto shown = end_at_stop(made, t, stops);
    made.text = std::move(shown.text);
    if (shown.stop != nullptr) made.stop = *shown.stop;
    return made;
}

// The directory of a model: the given one, or the one in the --out of `calm train`.
inline std::string directory_of_model(std::string const& directory) {
    auto const inside = in_directory(directory, "model");
    bool const is_run = !is_there(in_directory(directory, config_file)) && is_there(in_directory(inside, config_file));
    return is_run ? inside : directory;
}

// The counts in the directory of a model, if it has them.
inline std::optional<bigram_table> counts_in(stored_model const& stored) {
    auto const path = stored.path(bigram_file);
    return is_there(path) ? std::optional(bigram_table::load(path)) : std::nullopt;
}

}  // namespace detail

/// A CALM of configuration C with its tokenizer: language_model<mine> on the CPU, language_model<mine, cuda> on a GPU.
/// A model saved on one device loads on every device. Results of two devices differ by rounding. Not thread-safe. May
/// be moved.
template <model_configuration auto C, class Backend = cpu> class language_model {
public:
    using backend = Backend;                                ///< where the model computes
    using model_type = calm_model<C, space<Backend>>;       ///< the type of model()
    static constexpr index_t K = C.autoencoder.patch_size;  ///< tokens per patch

    /// An untrained model for these documents: learns the vocabulary from them and encodes them for train(). Throws
    /// errc::data if they have no text, errc::tokenizer if they have too little for the vocabulary, errc::usage for a
    /// vocabulary below 259, and errc::memory.
    explicit language_model(std::vector<std::string> const& documents, language_model_options const& o = {}) :
        ctx_(context_at<Backend>({.threads = o.threads, .seed = o.seed})),
        tokenizer_(calm::tokenizer::train(with_text(documents), o.vocabulary)), text_(corpus_of(documents, tokenizer_)),
        own_(std::make_unique<owned>(tokenizer_.vocabulary_size())), tokenizer_file_{tokenizer_.file_name(),
                                                                                     tokenizer_.lines()} {
        initialise(ctx_, own_->model);
    }

    /// Trains on the documents given to the constructor, with the recipes of `calm train`: first the autoencoder, then
    /// the language model. Later calls continue with the language model alone, with a new optimizer and schedule. If
    /// `stop` ends the autoencoder's training, the model stays untrained. Throws errc::usage for an unclear length or a
    /// model without text, errc::data if the text is shorter than one block, errc::non_finite as train_calm, and the
    /// errors of the callbacks.
    void train(language_model_training const& how) {
        require_length(how);
        require(text_.documents() > 0, errc::usage,
                "calm::language_model::train: expected a text, found none because the model was loaded; give the "
                "documents: train(calm::read_text(\"my.jsonl\"), {.minutes = 20})");
        text_setting const setting{.K = K, .is_generated = how.is_generated, .minutes = how.minutes};
        auto recipe = calm_recipe_of_text<typename model_type::objective>(setting);
        // Before the autoencoder is trained: it fails for a text that is too short.
        text_blocks blocks(text_, K, recipe.block_tokens, ctx_.seed, mode());
        std::optional<double> minutes;
        if (how.minutes > 0) minutes = how.minutes;
        if (!has_autoencoder_) {
            if (!train_autoencoder_of(how, setting)) return;
            if (minutes) minutes = how.minutes - minutes_of_autoencoder(how.minutes);
        }
        set_length(recipe, how.steps, minutes, longest_text_warmup);
        hold_for_training();
        train_calm(ctx_, own_->model, blocks, recipe, callbacks_of("language model", how));
        counts_ = bigrams_of(text_, tokenizer_.vocabulary_size(), {mode(), static_cast<std::size_t>(K), ctx_.seed});
        description_ = describe(recipe);
        is_trained_ = true;
    }

    /// Trains on other documents, encoded with the tokenizer of the model; they replace its text. Throws as train, and
    /// errc::data if the documents have no text.
    void train(std::vector<std::string> const& documents, language_model_training const& how) {
        text_ = corpus_of(with_text(documents), tokenizer_);
        train(how);
    }

    /// Continues a prompt, which may be empty. Equal settings give equal texts. Throws errc::usage for an untrained
    /// model or a temperature that the sampler does not support, and errc::non_finite.
    generated_text generate(std::string_view prompt, generation_options const& o = {}) {
        require_trained("generate");
        generation_settings const settings{
            .sampler = sampler::of(o.sampler, o.temperature), .max_tokens = o.max_tokens, .seed = o.seed};
        return detail::text_of_generation(tokenizer_, o, [&](auto const& on_tokens) {
            return calm::generate(ctx_, own_->model, tokenizer_.encode(prompt), tokenizer_.specials(), settings,
                                  on_tokens);
        });
    }

    /// Writes a model directory: config.json, weights, tokenizer and counts(), which calm::load and the programs
    /// `calm generate` and `calm evaluate` open. A model directory that exists is replaced, as a whole or not at all.
    /// Throws errc::usage for an untrained model, and errc::storage if something else exists at the path or it cannot
    /// be written.
    void save(std::string const& directory) {
        require_trained("save");
        require_replaceable(directory);
        model_files files{tokenizer_file_};
        if (counts_) files.emplace(bigram_file, counts_->bytes());
        save_model(ctx_, directory, own_->model, description_, files, if_exists::replace);
    }

    /// The model and its memory; see calm_model. It holds no gradients after loading.
    [[nodiscard]] model_type& model() { return own_->model; }
    [[nodiscard]] model_type const& model() const { return own_->model; }          ///< read-only
    [[nodiscard]] calm::tokenizer const& tokenizer() const { return tokenizer_; }  ///< of its text
    [[nodiscard]] context<Backend>& ctx() { return ctx_; }                         ///< threads, seed, workspace
    /// Describes the model for config.json; only of a trained model.
    [[nodiscard]] model_description const& description() const { return description_; }
    /// Counts of tokens and pairs in the text of the last training: the bigram reference of evaluate_model. Null for an
    /// untrained model, or one loaded from a directory without them.
    [[nodiscard]] bigram_table const* counts() const { return counts_ ? &*counts_ : nullptr; }
    /// Whether train() has finished, or the model was loaded.
    [[nodiscard]] bool is_trained() const { return is_trained_; }

    /// Opens a model directory, or the --out of `calm train` that holds one. Throws errc::model_file if it is not the
    /// directory of a CALM, errc::config with every size that differs from C, errc::tokenizer, and errc::data for
    /// damaged counts.
    [[nodiscard]] static language_model load(std::string const& directory, load_options const& o = {}) {
        auto stored = read_calm(detail::directory_of_model(directory));
        stored.pattern = o.pattern;
        return language_model(stored, o);
    }

private:
    using owned = owned_model<model_type>;

    language_model(stored_model const& stored, load_options const& o) :
        ctx_(context_at<Backend>({.threads = o.threads, .seed = o.seed})), tokenizer_(load_tokenizer(stored)),
        text_(tokenizer_.specials()),
        own_(std::make_unique<owned>(tokenizer_.vocabulary_size(), model_mode::inference)),
        tokenizer_file_{std::filesystem::path(tokenizer_file_of(stored)).filename().string(),
                        std::string(mapped_file::open(tokenizer_file_of(stored)).text())},
        description_(stored.description), counts_(detail::counts_in(stored)),
        autoencoder_objective_(autoencoder_objective_of(stored.description)), has_gradients_(false),
        has_autoencoder_(true), is_trained_(true) {
        load_model(ctx_, stored, own_->model);
        if (stored.description.calm) posterior_std_ = stored.description.calm->posterior_std;
        description_.ae_path.clear();  // a saved model contains its autoencoder
    }

    static stored_model read_calm(std::string const& directory) {
        auto stored = read_model_description(directory);
        if (stored.description.kind != model_kind::calm)
            throw error(errc::model_file, directory, "",
                        sentence("expected a CALM, found ",
                                 stored.description.kind == model_kind::autoencoder ? "an autoencoder"
                                                                                    : "an autoregressive model",
                                 ": give the directory of a CALM"));
        require_match(C, stored.vocabulary(), stored);
        return stored;
    }

    static std::vector<std::string> const& with_text(std::vector<std::string> const& documents) {
        require(std::any_of(documents.begin(), documents.end(), [](auto const& one) { return !one.empty(); }),
                errc::data, "calm::language_model: expected documents with text, found ", documents.size(),
                " without: give calm::read_text(...) or strings of your own");
        return documents;
    }
    // Only a vocabulary of symbols has no special tokens.
    [[nodiscard]] packing mode() const { return tokenizer_.specials().exist() ? packing::padded : packing::unbroken; }
    void require_trained(char const* wanted) const {
        require(is_trained_, errc::usage, "calm::language_model::", wanted,
                ": expected a trained model, found one that is not; call train() first, or calm::load");
    }
    void require_length(language_model_training const& how) const {
        bool const by_time = how.minutes > 0 && how.steps == 0 && how.autoencoder_steps == 0;
        bool const by_steps = how.minutes == 0 && how.steps > 0 && (how.autoencoder_steps > 0 || has_autoencoder_);
        require(by_time || by_steps, errc::usage,
                "calm::language_model::train: expected either minutes or the steps of both models, found minutes ",
                six_digits(how.minutes), ", autoencoder_steps ", how.autoencoder_steps, ", steps ", how.steps,
                "; give {.minutes = 20}, or {.autoencoder_steps = 500, .steps = 1000}");
        require(!has_autoencoder_ || how.autoencoder_steps == 0, errc::usage,
                "calm::language_model::train: expected no autoencoder_steps for a model whose autoencoder is trained, "
                "found ",
                how.autoencoder_steps, "; leave them out");
    }
    static void require_replaceable(std::string const& directory) {
        if (!is_there(directory)) return;
        std::error_code unknown;
        bool const is_run = run_directory::holds_run(directory);
        if (!is_run && is_there(in_directory(directory, config_file))) return;
        if (!is_run && std::filesystem::is_directory(directory, unknown) &&
            std::filesystem::is_empty(directory, unknown))
            return;
        throw error(errc::storage, directory, "",
                    sentence("expected a path that does not exist, or a model directory to replace; found ",
                             is_run ? "the directory of a training run" : "something else",
                             ": choose another path, or remove what is there"));
    }

    static void set_length(training_recipe& recipe, index_t steps, std::optional<double> minutes, index_t longest) {
        recipe.steps = minutes ? 0 : steps;
        recipe.seconds = 60 * minutes.value_or(0);
        if constexpr (device_memory<Backend>) recipe.log_every = 10;  // the host waits for every report
        recipe.warmup = warmup_of_text(minutes ? std::nullopt : std::optional(steps), minutes, longest);
    }

    // Reports the step with which another tenth of the run is done.
    training_callbacks callbacks_of(std::string_view name, language_model_training const& how) {
        training_callbacks calls;
        calls.stop = how.stop;
        if (!how.log) return calls;
        calls.step = [&how, name, tenths = 0](progress const& now) mutable {
            int const done = static_cast<int>(10 * now.done + 1e-9);
            if (std::exchange(tenths, std::max(tenths, done)) < done) how.log({name, now});
        };
        return calls;
    }

    // Trains a new autoencoder and copies it into the model. False if `stop` ended it.
    bool train_autoencoder_of(language_model_training const& how, text_setting const& setting) {
        auto recipe = autoencoder_recipe_of_text(setting);
        std::optional<double> minutes;
        if (how.minutes > 0) minutes = minutes_of_autoencoder(how.minutes);
        set_length(recipe, how.autoencoder_steps, minutes, longest_autoencoder_warmup);
        auto trained = make_autoencoder<C>(ctx_, tokenizer_.vocabulary_size());
        auto calls = callbacks_of("autoencoder", how);
        bool stopped = false;
        if (how.stop) calls.stop = [&] { return stopped = how.stop(); };
        calls.step = [&, report = std::move(calls.step)](progress const& now) {
            if (now.posterior_std > 0) posterior_std_ = now.posterior_std;
            if (report) report(now);
        };
        train_autoencoder(ctx_, trained.model, text_blocks(text_, K, K, ctx_.seed, mode()), recipe, calls);
        if (stopped) return false;
        copy_parameters(ctx_, parameters_of(own_->model.ae_model), parameters_of(trained.model));
        autoencoder_objective_ = recipe.objective;
        has_autoencoder_ = true;
        return true;
    }

    // A loaded model gets gradients when it is first trained.
    void hold_for_training() {
        if (has_gradients_) return;
        auto made = std::make_unique<owned>(tokenizer_.vocabulary_size());
        copy_parameters(ctx_, made->model, own_->model);
        own_ = std::move(made);
        has_gradients_ = true;
    }

    [[nodiscard]] model_description describe(calm_recipe<typename model_type::objective> const& recipe) const {
        calm_description ours;
        ours.configuration = "custom";
        ours.posterior_std = posterior_std_;
        ours.data = data_description{.mode = std::string(mode_name(mode())),
                                     .block_tokens = recipe.block_tokens,
                                     .data_seed = document_selection{}.data_seed,
                                     .holdout = "",
                                     .sources = {},
                                     .extras = {}};
        ours.tokenizer = tokenizer_description{.file = tokenizer_file_.first,
                                               .pattern = tokenizer_.pattern(),
                                               .fingerprint = tokenizer_.fingerprint(),
                                               .extras = {}};
        auto made = describe_model<C>(tokenizer_.vocabulary_size(), recipe.objective, autoencoder_objective_, ours);
        made.max_position_embeddings = std::max({made.max_position_embeddings, description_.max_position_embeddings,
                                                 std::int64_t{recipe.block_tokens / K}});
        set_special_ids(made, tokenizer_.specials());
        return made;
    }

    context<Backend> ctx_;
    calm::tokenizer tokenizer_;
    corpus text_;                                         // empty for a loaded model
    std::unique_ptr<owned> own_;                          // never null
    std::pair<std::string, std::string> tokenizer_file_;  // its name in a model directory, and its bytes
    model_description description_;                       // of a trained model
    std::optional<bigram_table> counts_;
    autoencoder_objective autoencoder_objective_;
    double posterior_std_ = 0;
    bool has_gradients_ = true;
    bool has_autoencoder_ = false;  // a trained one
    bool is_trained_ = false;
};

/// Opens a model directory as a model of configuration C, on the CPU or on a device: load<mine, cuda>("my-model"). See
/// language_model::load.
template <model_configuration auto C, class Backend = cpu>
[[nodiscard]] language_model<C, Backend> load(std::string const& directory, load_options const& o = {}) {
    return language_model<C, Backend>::load(directory, o);
}

}  // namespace calm
