#include "training_jobs.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/write_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/packed_blocks.hpp"
#include "calm/train/session.hpp"
#include "model_in_training.hpp"
#include "products.hpp"
#include "program.hpp"
#include "run/initial_weights.hpp"
#include "run/ranks.hpp"
#include "run/run_plan.hpp"
#include "run/run_record.hpp"
#include "run/seen_text.hpp"
#include "run/training_run.hpp"
#include "stored_work.hpp"
#include "text/prompt.hpp"
#include "text/text_data.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

training_placement training_placement_of(train_options const& o) {
    training_placement placement;
    placement.threads = o.threads;
    placement.device = o.device.number_here();
    placement.seed = o.seed;
    placement.in_bf16 = o.in_bf16;
    placement.own_device = !o.device.number;
    return placement;
}

// Describes where and in which precision a model is trained.
std::string place_text(model_in_training const& model, bool on_device, bool in_bf16) {
    std::string place(model.device());
    if (auto const* const all = ranks(); on_device && all != nullptr)
        place += sentence(", ", all->ranks(), " ranks that communicate through ",
                          all->devices != nullptr ? all->devices->name() : "host memory");
    if (!in_bf16) return place;
    return place + (on_device ? ", products and activations in bf16" : ", products in bf16") +
           (on_device || has_bf16_products() ? "" : " without AVX512-BF16 instructions: slower than f32");
}

model_in_training::next_blocks next_of(text_blocks& blocks) {
    return [&blocks](std::span<token_id> tokens) { blocks(tokens); };
}

// The memory that a run needs: its loop ends before the first step.
template <class Model, class Recipe> memory_plan memory_of(Model& model, Recipe const& recipe) {
    memory_plan plan;
    model.train([](std::span<token_id>) {}, recipe, only_the_plan(plan, recipe), nullptr);
    return plan;
}

// On a device, the host waits once per ten steps, and micro-batches are made as large as its memory allows, unless
// --accumulation or the resumed run fixes their number. `make` makes a model.
template <class Recipe, class Make>
void adapt_to_device(Recipe& recipe, train_options const& o, training_run const& run, Make const& make) {
    recipe.log_every = 10;
    if (recipe.accumulation == 1 || o.accumulation || run.from()) return;
    auto const bytes = [&](index_t micro_batches) {
        auto tried = recipe;
        tried.accumulation = micro_batches;
        try {
            return memory_of(*make(), tried).total();
        } catch (error const& e) {
            if (e.code() != errc::memory) throw;
            return std::numeric_limits<std::size_t>::max();
        }
    };
    recipe.accumulation = fewest_micro_batches(recipe.accumulation, ranks() != nullptr ? ranks()->ranks() : 1,
                                               make()->device_memory(), bytes);
}

// Reports model size and text. The device is reported unless it is "cpu".
void report_model(run_report& report, std::string const& name, index_t parameters, corpus const& text,
                  tokenizer const& tokenizer, std::string const& device) {
    report.print_line(formatted("%s: %s parameters to train, vocabulary %d, %zu documents with %zu tokens",
                                name.c_str(), grouped(parameters).c_str(), tokenizer.vocabulary_size(),
                                text.documents(), text.tokens()) +
                      (device == "cpu" ? "" : ", on " + device));
}

// The plan of a run of `model`, whose recipe takes so many tokens per step.
template <class Model, class Recipe>
run_plan planned(entry const& one, double (*muon)(), Model& model, Recipe const& recipe, tokenizer const& tokenizer,
                 text_size const& text, std::size_t heldout, index_t tokens_per_step) {
    run_plan plan{.configuration = one.name,
                  .parameters = model.parameters(),
                  .vocabulary = tokenizer.vocabulary_size(),
                  .documents = text.documents,
                  .tokens = text.tokens,
                  .heldout_tokens = heldout,
                  .tokens_per_step = tokens_per_step,
                  .recipe = recipe};
    plan.muon_flops = recipe.optimizer.muon > 0 ? muon() : 0;
    plan.flops_per_token = model.flops_per_token(recipe);
    plan.memory = memory_of(model, recipe);
    return plan;
}
int print_plan(run_plan const& plan, train_options const& o) {
    text_output().put(to_text(plan, o));
    return 0;
}

// The model whose weights a run starts from: its newest checkpoint, else the one of --init.
std::optional<stored_model> starting_model(training_run const& run, std::optional<stored_model> const& init) {
    return run.from() ? read_model_description(run.from()->directory) : init;
}

// Texts still end at every id at which those of the model of --init end.
void add_ends(model_description& d, stored_model const& init) {
    for (token_id const id : init.ends)
        if (std::find(d.eos_token_id.begin(), d.eos_token_id.end(), id) == d.eos_token_id.end())
            d.eos_token_id.push_back(id);
}

// max_position_embeddings for a model trained on blocks of `block` positions: at least the default, and at least the
// value of the model it starts from.
index_t positions_of(index_t block, std::optional<stored_model> const& start = {}) {
    index_t const before = start ? start->description.max_position_embeddings : 0;
    return std::max({model_description{}.max_position_embeddings, block, before});
}

// Prompt of the training samples: --sample-prompt. A vocabulary without BOS needs at least one patch, so its default
// prompt is one patch of the first symbol.
std::vector<std::vector<token_id>> prompt_of_samples(train_options const& o, tokenizer const& tokenizer, index_t K,
                                                     index_t block) {
    bool const needs_one = o.sample_prompt.empty() && !tokenizer.specials().exist();
    auto prompt = needs_one ? std::vector<token_id>(static_cast<std::size_t>(K), 0)
                            : prompt_tokens(o.sample_prompt, tokenizer, K, positions_of(block / K));
    return {std::move(prompt)};
}

// Held-out tokens scored at the end of a run with K tokens per position, and by each evaluation before.
std::size_t final_tokens(train_options const& o, index_t K) {
    return static_cast<std::size_t>(o.heldout_positions * K);
}
// Fewer in a run of less than ten minutes, which evaluations would fill.
std::size_t interval_tokens(train_options const& o, index_t K) {
    double const share = 0.4 * std::clamp(o.minutes.value_or(10) / 10, 0.1, 1.0);
    return static_cast<std::size_t>(K) *
           std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(o.heldout_positions)));
}

// What a language model supplies to its run.
struct learner {
    std::function<void(std::string const&)> write;   // to a directory
    std::function<std::string()> sample;             // generated with the current weights
    std::function<evaluation(std::size_t)> measure;  // on this many held-out tokens
    std::function<void(training_callbacks const&)> train;
};
// Trains a language model of K tokens per position to the end of its run, with samples and scores along the way.
void learn(training_run& run, training_recipe const& recipe, text_blocks const& blocks, learning_levels const& levels,
           train_options const& o, index_t K, learner const& model) {
    auto const measure_on_the_way = [&] { return model.measure(interval_tokens(o, K)); };
    std::optional<samples_log> samples;
    if (is_first_rank()) samples.emplace(o.out, run.steps());
    auto const calls = run.callbacks(
        recipe, blocks, model.write,
        [&](progress const& now) {
            if (samples) samples->add(now.step + 1, now.seconds, o.sample_prompt, model.sample());
            return report_evaluation(run.report(), measure_on_the_way(), now, recipe, levels);
        },
        [&] { return score_of(measure_on_the_way()); });
    run.train([&] { model.train(calls); });
    if (run.logs_end()) log_final(run.report(), model.measure(final_tokens(o, K)), run.steps(), run.seconds(), levels);
}

// What a run gives to its model, whatever its kind.
struct run_material {
    training_run& run;
    std::string const& configuration;
    train_options const& options;
    calm::tokenizer const& tokenizer;
    corpus const& text;
    text_blocks& blocks;
    calm_description const& ours;
    bool on_device;
    bool holds_out;
    std::optional<stored_model> const& init;    // the model that --init names
    stored_model const* autoencoder = nullptr;  // of a CALM
};
// A model whose weights are drawn or loaded.
template <class Model> struct begun_model {
    std::optional<stored_model> start;  // the model that they were loaded from, if any
    std::unique_ptr<Model> model;
    std::unique_ptr<device_transport> devices;
};
// Begins or resumes a run of a model that `make` makes, and reports the model. Nothing if the run is finished.
template <class Sizes, class Recipe, class Make>
auto begin_model(run_material const& from, std::string const& kind, Sizes const& sizes, Recipe& recipe,
                 Make const& make) {
    using model_type = typename std::invoke_result_t<Make>::element_type;
    using result = std::optional<begun_model<model_type>>;
    auto& run = from.run;
    auto const& o = from.options;
    auto start = starting_model(run, from.init);
    auto const fits = [&] {
        if (start) require_match(sizes, from.tokenizer.vocabulary_size(), *start);
    };
    auto const settings = settings_of(kind, from.ours, o, from.text, from.autoencoder, record_of(recipe, o.seed));
    if (!run.begin(settings, recipe, from.holds_out, fits)) return result();
    auto model = make();
    auto devices = model->devices(ranks());
    if constexpr (std::is_same_v<model_type, calm_in_training>)
        model->begin(start, !run.from() || run.changed("autoencoder") ? from.autoencoder : nullptr);
    else
        model->begin(start);
    run.seek(from.blocks);
    recipe.machine_peak = model->machine_peak();
    report_model(run.report(), from.configuration, model->parameters(), from.text, from.tokenizer,
                 place_text(*model, from.on_device, o.in_bf16));
    return result({std::move(start), std::move(model), std::move(devices)});
}

void save(model_in_training& model, std::string const& directory, model_description const& description,
          model_files const& files) {
    model.with_stored_weights([&](std::span<stored_tensor const> tensors) {
        calm::write_model(directory, description, files, if_exists::refuse, tensors);
    });
}
void save_with_counts(language_model_in_training& model, std::string const& directory,
                      model_description const& description, model_files const& files, bigram_table const& counts) {
    save(model, directory, description, files);
    counts.save(directory + "/" + std::string(bigram_file));
}

}  // namespace

int train_autoencoder(training_job const& job, train_options const& o) {
    auto const& one = job.configuration;
    auto const& work = job.work;
    auto const& init = job.init;
    auto const& sizes = one.calm().autoencoder;
    index_t const K = sizes.patch_size;
    index_t const block = 64 * K;
    training_run run(o);
    auto recipe = recipe_for(one.defaults.autoencoder, o);
    run.keep_as_begun(recipe);
    auto const chosen = choose_tokenizer(o, init);
    auto const& tokenizer = chosen.tokens;
    token_id const V = tokenizer.vocabulary_size();
    auto const make = [&] { return work.make_autoencoder(training_placement_of(o), V, work.measures); };
    if (work.on_device) adapt_to_device(recipe, o, run, make);
    auto const data_seed = data_seed_of(o.data);
    auto const mode = packing_for(packed_for::autoencoder, o.data, tokenizer);
    auto const unseen =
        heldout_blocks(o.data, tokenizer, {mode, static_cast<std::size_t>(K), data_seed}, block, final_tokens(o, K));
    if (o.dry_run) {
        auto const size =
            size_of_training_text(o.data, tokenizer, data_seed, {mode, static_cast<std::size_t>(K), o.seed}, K);
        return print_plan(planned(one, work.muon_of_autoencoder, *make(), recipe, tokenizer, size, unseen.size(),
                                  recipe.batch_tokens),
                          o);
    }
    auto const text = run.text(tokenizer, data_seed);
    text_blocks blocks(text, K, K, o.seed, mode);
    auto const ours = description_of(one.name, o, data_seed, K, mode, tokenizer);
    auto const begun =
        begin_model({run, one.name, o, tokenizer, text, blocks, ours, work.on_device, !unseen.empty(), init},
                    "autoencoder", sizes, recipe, make);
    if (!begun) return 0;
    auto const& model = begun->model;

    auto description = model->describe(recipe.objective, ours);
    set_special_ids(description, tokenizer.specials());
    auto const measure = [&](std::size_t tokens) {
        return model->score(spread_blocks(unseen, block, tokens), tokenizer.specials().pad, o.seed, ranks());
    };
    auto calls = run.callbacks(
        recipe, blocks, [&](std::string const& directory) { save(*model, directory, description, chosen.files); },
        [&](progress const& now) {
            return report_evaluation(run.report(), measure(interval_tokens(o, K)), now.step + 1);
        },
        [&] { return score_of(measure(interval_tokens(o, K))); });
    calls.step = [&, report_step = std::move(calls.step)](progress const& now) {
        if (now.posterior_std > 0) description.calm->posterior_std = now.posterior_std;
        report_step(now);
    };
    run.train([&] { model->train(next_of(blocks), recipe, calls, ranks()); });
    if (run.logs_end()) log_final(run.report(), measure(final_tokens(o, K)), run.steps());
    return run.end(remark_on(model->unsupported()));
}

int train_calm(training_job const& job, train_options const& o) {
    auto const& one = job.configuration;
    auto const& work = job.work;
    auto const& init = job.init;
    auto const& sizes = one.calm();
    index_t const K = sizes.autoencoder.patch_size;
    refuse_same_directory(o);
    training_run run(o);
    auto recipe = recipe_for(one.defaults.calm, o);
    work.complete_objective(recipe.objective);
    run.keep_as_begun(recipe);
    auto stored = opened_model(o.autoencoder);
    stored.pattern = o.pattern;
    auto const tokenizer = load_tokenizer(stored);
    token_id const V = tokenizer.vocabulary_size();
    require_match(sizes.autoencoder, V, stored);
    if (init) require_tokenizer_of(*init, tokenizer, "choose one with the tokenizer of --autoencoder");
    auto const make = [&] { return work.make_calm(training_placement_of(o), V, work.measures); };
    if (work.on_device) adapt_to_device(recipe, o, run, make);
    if (!o.data.holdout.empty()) log_seen_text(stored, o.data);  // without it, no file is scored
    auto const data_seed = data_seed_of(o.data, &stored);
    auto const mode = packing_for(packed_for::language_model, o.data, tokenizer, &stored);
    index_t const block = recipe.block_tokens;
    packing_rule const rule{mode, static_cast<std::size_t>(K), o.seed};
    auto const unseen =
        heldout_blocks(o.data, tokenizer, {mode, static_cast<std::size_t>(K), data_seed}, block, final_tokens(o, K));
    auto const sample_prompt = prompt_of_samples(o, tokenizer, K, block);
    if (o.dry_run)
        return print_plan(planned(one, work.muon_of_model, *make(), recipe, tokenizer,
                                  size_of_training_text(o.data, tokenizer, data_seed, rule, block), unseen.size(),
                                  recipe.sequences * block),
                          o);
    auto const text = run.text(tokenizer, data_seed);
    text_blocks blocks(text, K, block, o.seed, mode);
    auto const counts = bigrams_of(text, V, rule);
    auto ours = description_of(one.name, o, data_seed, block, mode, tokenizer);
    if (stored.description.calm) ours.posterior_std = stored.description.calm->posterior_std;
    model_files const files{{tokenizer.file_name(), bytes_of_file(tokenizer_file_of(stored))}};
    auto const levels = levels_of(one, o, ours, V);
    auto const begun =
        begin_model({run, one.name, o, tokenizer, text, blocks, ours, work.on_device, !unseen.empty(), init, &stored},
                    "calm", sizes, recipe, make);
    if (!begun) return 0;
    auto const& model = begun->model;
    if (!run.from() && !unseen.empty())
        log_autoencoder(run.report(), model->score_frozen(spread_blocks(unseen, block, interval_tokens(o, K)),
                                                          tokenizer.specials().pad, o.seed, ranks()));

    auto description = model->describe(recipe.objective, autoencoder_objective_of(stored.description), ours);
    description.max_position_embeddings = positions_of(block / K, begun->start);
    set_special_ids(description, tokenizer.specials());
    learn(run, recipe, blocks, levels, o, K,
          {.write = [&](std::string const& to) { save_with_counts(*model, to, description, files, counts); },
           .sample = [&] { return tokenizer.decode(model->sample(tokenizer.specials(), sample_prompt)); },
           .measure =
               [&](std::size_t tokens) {
                   return completed(model->score(spread_blocks(unseen, block, tokens), tokenizer.specials(), counts,
                                                 {.block_tokens = block, .seed = o.seed}, recipe.objective, ranks()),
                                    mode, o.data, data_seed);
               },
           .train = [&](training_callbacks const& calls) { model->train(next_of(blocks), recipe, calls, ranks()); }});
    return run.end(remark_on(model->unsupported()));
}

int train_autoregressive(training_job const& job, train_options const& o) {
    auto const& one = job.configuration;
    auto const& work = job.work;
    auto const& init = job.init;
    auto const& sizes = one.autoregressive();
    refuse_same_directory(o);
    training_run run(o);
    auto recipe = recipe_for(defaults_of(one, init).autoregressive, o);
    run.keep_as_begun(recipe);
    if (work.on_device) recipe.log_every = 10;
    auto const chosen = choose_tokenizer(o, init);
    auto const& tokenizer = chosen.tokens;
    token_id const V = tokenizer.vocabulary_size();
    auto const make = [&] { return work.make_autoregressive(training_placement_of(o), V, work.measures); };
    auto const data_seed = data_seed_of(o.data);
    auto const mode = packing_from(init, o.data, tokenizer);
    index_t const block = recipe.block_tokens;
    packing_rule const rule{mode, 1, o.seed};
    auto const unseen = heldout_blocks(o.data, tokenizer, {mode, 1, data_seed}, block, final_tokens(o, 1));
    auto const sample_prompt = prompt_of_samples(o, tokenizer, 1, block);
    if (o.dry_run) {
        auto plan = planned(one, work.muon_of_model, *make(), recipe, tokenizer,
                            size_of_training_text(o.data, tokenizer, data_seed, rule, block), unseen.size(),
                            recipe.sequences * block);
        plan.level = recipe.level;
        return print_plan(plan, o);
    }
    auto const text = run.text(tokenizer, data_seed);
    text_blocks blocks(text, 1, block, o.seed, mode);
    auto const counts = bigrams_of(text, V, rule);
    auto ours = description_of(one.name, o, data_seed, block, mode, tokenizer);
    ours.tokenizer->bos_first = chosen.bos_first;
    auto const levels = levels_of(one, o, ours, V);
    auto const begun =
        begin_model({run, one.name, o, tokenizer, text, blocks, ours, work.on_device, !unseen.empty(), init}, "ar",
                    sizes, recipe, make);
    if (!begun) return 0;
    auto const& model = begun->model;
    log_patch_level(run.report(), recipe.level);

    auto description = model->describe(ours);
    description.max_position_embeddings = positions_of(block, begun->start);
    set_special_ids(description, tokenizer.specials());
    if (init) add_ends(description, *init);
    auto const bytes = bytes_of_tokens(tokenizer);
    learn(run, recipe, blocks, levels, o, 1,
          {.write = [&](std::string const& to) { save_with_counts(*model, to, description, chosen.files, counts); },
           .sample = [&] { return tokenizer.decode(model->sample(tokenizer.specials(), sample_prompt)); },
           .measure =
               [&](std::size_t tokens) {
                   return completed(model->score(spread_blocks(unseen, block, tokens), tokenizer.specials(), counts,
                                                 {.block_tokens = block, .seed = o.seed}, bytes, ranks()),
                                    mode, o.data, data_seed);
               },
           .train = [&](training_callbacks const& calls) { model->train(next_of(blocks), recipe, calls, ranks()); }});
    return run.end(remark_on(model->unsupported()));
}

}  // namespace calm::apps
