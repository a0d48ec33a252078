#pragma once
// The programs' training of a CALM, and with compiled_loading.hpp all of their work for it. It instantiates all
// templates, so only the source files in configs/ and plug-ins include it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiled_model.hpp"

namespace calm::apps {

// Trains configuration C in one space.
template <model_configuration auto C, class Space> class calm_training : compiled_model {
    using Backend = typename Space::backend;
    using model_type = calm_model<C, Space>;
    using autoencoder_type = typename model_type::autoencoder_type;

public:
    // The measures must outlive this.
    calm_training(std::string name, recipes const& defaults, measures_of_calm<C, Space> const& measures) :
        compiled_model(std::move(name), defaults), measures_(measures) {}

    int train_autoencoder(train_options const& o) const {
        training_run run(o);
        auto recipe = recipe_for(defaults_.autoencoder, o);
        run.keep_as_begun(recipe);
        log_together<Backend>(recipe);
        auto const tokenizer = tokenizer_named(o.tokenizer, o.pattern);
        fill_memory<Backend>(recipe, o, run, [&](auto const& of) { return memory_of(of, o, tokenizer); });
        auto const data_seed = data_seed_of(o.data);
        auto const mode = packing_for(packed_for::autoencoder, o.data, tokenizer);
        index_t const block = 64 * K;
        auto const unseen =
            heldout_blocks(o.data, tokenizer, {mode, size_of_patch, data_seed}, block, final_tokens(o, K));
        if (o.dry_run) {
            auto const size = size_of_training_text(o.data, tokenizer, data_seed, {mode, size_of_patch, o.seed}, K);
            owned_model<autoencoder_type> own(tokenizer.vocabulary_size());
            auto plan =
                plan_of(recipe, count_parameters(own.model), tokenizer, size, unseen.size(), recipe.batch_tokens);
            plan.muon_flops = recipe.optimizer.muon > 0 ? muon_of_autoencoder() : 0;
            plan.flops_per_token = flops::train_autoencoder(C.autoencoder, tokenizer.vocabulary_size(),
                                                            recipe.batch_tokens / recipe.accumulation / K) /
                                   double(K);
            plan.memory = memory_of(recipe, o, tokenizer);
            return print_plan(plan, o);
        }
        auto const text = run.text(tokenizer, data_seed);
        text_blocks blocks(text, K, K, o.seed, mode);
        auto const ours = description_of(name_, o, data_seed, K, mode, tokenizer);
        auto const files = beside(tokenizer, tokenizer_bytes(o.tokenizer));  // read before training
        auto const start = initial_model(run.from() ? run.from()->directory : "", o, tokenizer);
        auto const fits = [&] { require_fit(C.autoencoder, tokenizer, start); };
        if (!run.begin(settings_of("autoencoder", ours, o, text, nullptr, record_of(recipe, o.seed)), recipe,
                       !unseen.empty(), fits))
            return 0;
        auto ctx = context_of<Backend>(o);
        auto const devices = devices_of(ctx, o.device);
        auto own = make_autoencoder<C>(ctx, tokenizer.vocabulary_size());
        if (start) load_autoencoder(ctx, *start, own.model);
        run.seek(blocks);
        recipe.machine_peak = measure_peak(ctx);
        describe(run.report(), count_parameters(own.model), text, tokenizer, place_of<Space>(o));

        auto description = describe_autoencoder<C.autoencoder>(tokenizer.vocabulary_size(), recipe.objective, ours);
        set_special_ids(description, tokenizer.specials());
        auto const measure = [&](std::size_t tokens) {
            return measures_.score_autoencoder(ctx, own.model, spread_blocks(unseen, block, tokens),
                                               tokenizer.specials().pad, o.seed, ranks());
        };
        auto calls = run.callbacks(
            recipe, blocks,
            [&](std::string const& directory) { save_autoencoder(ctx, directory, own.model, description, files); },
            [&](progress const& now) {
                return report_evaluation(run.report(), measure(interval_tokens(o, K)), now.step + 1);
            },
            [&] { return score_of(measure(interval_tokens(o, K))); });
        calls.step = [&, report_step = std::move(calls.step)](progress const& now) {
            if (now.posterior_std > 0) description.calm->posterior_std = now.posterior_std;
            report_step(now);
        };
        run.train([&] { calm::train_autoencoder(ctx, own.model, next_of(blocks), recipe, calls, ranks()); });
        if (run.logs_end()) log_final(run.report(), measure(final_tokens(o, K)), run.steps());
        return run.end(remark_on(unsupported_by(ctx)));
    }

    int train_calm(train_options const& o) const {
        refuse_same_directory(o);
        training_run run(o);
        auto recipe = with_objective<objective>(recipe_for(defaults_.calm, o));
        run.keep_as_begun(recipe);
        log_together<Backend>(recipe);
        auto stored = opened_model(o.autoencoder);
        stored.pattern = o.pattern;
        auto const tokenizer = load_tokenizer(stored);
        require_match(C.autoencoder, tokenizer.vocabulary_size(), stored);
        fill_memory<Backend>(recipe, o, run, [&](auto const& of) { return memory_of(of, o, tokenizer); });
        log_another_holdout(stored, o.data);
        auto const data_seed = data_seed_of(o.data, &stored);
        auto const mode = packing_for(packed_for::language_model, o.data, tokenizer, &stored);
        index_t const block = recipe.block_tokens;
        packing_rule const rule{mode, size_of_patch, o.seed};
        auto const unseen =
            heldout_blocks(o.data, tokenizer, {mode, size_of_patch, data_seed}, block, final_tokens(o, K));
        auto const sample_prompt = prompt_of_samples(o, tokenizer, K, block);
        if (o.dry_run)
            return print_plan(plan_of_calm(recipe, o, tokenizer,
                                           size_of_training_text(o.data, tokenizer, data_seed, rule, block),
                                           unseen.size()),
                              o);
        auto const text = run.text(tokenizer, data_seed);
        text_blocks blocks(text, K, block, o.seed, mode);
        auto const counts = bigrams_of(text, tokenizer.vocabulary_size(), rule);
        auto ours = description_of(name_, o, data_seed, block, mode, tokenizer);
        if (stored.description.calm) ours.posterior_std = stored.description.calm->posterior_std;
        auto const files = beside(tokenizer, bytes_of_file(tokenizer_file_of(stored)));  // read before training
        auto const levels = levels_of(o, ours, tokenizer.vocabulary_size());
        auto const start = initial_model(run.from() ? run.from()->directory : "", o, tokenizer);
        auto const fits = [&] { require_fit(C, tokenizer, start); };
        if (!run.begin(settings_of("calm", ours, o, text, &stored, record_of(recipe, o.seed)), recipe, !unseen.empty(),
                       fits))
            return 0;
        auto ctx = context_of<Backend>(o);
        auto const devices = devices_of(ctx, o.device);
        owned_model<model_type> own(tokenizer.vocabulary_size());
        begin_with(own.model, ctx, start, !run.from() || run.changed("autoencoder") ? &stored : nullptr);
        run.seek(blocks);
        recipe.machine_peak = measure_peak(ctx);
        describe(run.report(), count_parameters(own.model), text, tokenizer, place_of<Space>(o));
        if (!run.from() && !unseen.empty())
            log_frozen(run.report(), ctx, own.model.ae_model, spread_blocks(unseen, block, interval_tokens(o, K)),
                       tokenizer);

        auto description = describe_calm<C>(tokenizer.vocabulary_size(), recipe.objective,
                                            autoencoder_objective_of(stored.description), ours);
        description.max_position_embeddings = positions_of(block / K, start);
        set_special_ids(description, tokenizer.specials());
        evaluation_settings const settings{.block_tokens = block, .seed = o.seed};
        auto const measure = [&](std::size_t tokens) {
            return completed(measures_.score(ctx, own.model, spread_blocks(unseen, block, tokens), tokenizer.specials(),
                                             counts, settings, recipe.objective, ranks()),
                             mode, o.data, data_seed);
        };
        return learn(run, recipe, blocks, levels, o, K,
                     {.write = [&](std::string const& to) { save(ctx, to, own.model, description, files, counts); },
                      .sample =
                          [&] {
                              return tokenizer.decode(
                                  measures_.sample(ctx, own.model, tokenizer.specials(), sample_prompt));
                          },
                      .measure = measure,
                      .remark = [&] { return remark_on(unsupported_by(ctx)); },
                      .train =
                          [&](training_callbacks const& calls) {
                              calm::train_calm(ctx, own.model, next_of(blocks), recipe, calls, ranks());
                          }});
    }

    // Muon's FLOPs per update; they do not depend on the vocabulary.
    [[nodiscard]] double muon_of_autoencoder() const { return muon_of(autoencoder_type(C.autoencoder.vocab_size)); }
    [[nodiscard]] double muon_of_model() const { return muon_of(model_type(C.autoencoder.vocab_size)); }

private:
    using objective = typename model_type::objective;
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr auto size_of_patch = static_cast<std::size_t>(K);

    // Memory that a run needs.
    static memory_plan memory_of(autoencoder_recipe const& recipe, train_options const& o, tokenizer const& tokenizer) {
        auto ctx = context_of<Backend>(o);
        owned_model<autoencoder_type> own(tokenizer.vocabulary_size());
        memory_plan plan;
        calm::train_autoencoder(ctx, own.model, no_blocks(), recipe, only_the_plan(plan, recipe));
        return plan;
    }
    static memory_plan memory_of(calm_recipe<objective> const& recipe, train_options const& o,
                                 tokenizer const& tokenizer) {
        auto ctx = context_of<Backend>(o);
        owned_model<model_type> own(tokenizer.vocabulary_size());
        memory_plan plan;
        calm::train_calm(ctx, own.model, no_blocks(), recipe, only_the_plan(plan, recipe));
        return plan;
    }

    run_plan plan_of_calm(calm_recipe<objective> const& recipe, train_options const& o, tokenizer const& tokenizer,
                          text_size const& text, std::size_t heldout) const {
        owned_model<model_type> own(tokenizer.vocabulary_size());
        auto plan = plan_of(recipe, count_parameters(own.model), tokenizer, text, heldout,
                            recipe.sequences * recipe.block_tokens);
        plan.muon_flops = recipe.optimizer.muon > 0 ? muon_of_model() : 0;
        plan.flops_per_token =
            flops::train_calm_per_token(C, tokenizer.vocabulary_size(), recipe.sequences / recipe.accumulation,
                                        recipe.block_tokens, recipe.objective.samples);
        plan.memory = memory_of(recipe, o, tokenizer);
        return plan;
    }
    static void save(context<Backend> const& ctx, std::string const& directory, model_type& model,
                     model_description const& description, model_files const& files, bigram_table const& counts) {
        save_calm(ctx, directory, model, description, files);
        counts.save(directory + "/" + std::string(bigram_file));
    }
    // Reports how well the frozen autoencoder of a CALM reconstructs held-out text.
    void log_frozen(run_report& report, context<Backend>& ctx, autoencoder_type& frozen,
                    std::vector<token_id> const& tokens, tokenizer const& tokenizer) const {
        log_autoencoder(report,
                        measures_.score_autoencoder(ctx, frozen, tokens, tokenizer.specials().pad, ctx.seed, ranks()));
    }
    // Initialises the weights: loaded from `start` or drawn at random. A given autoencoder replaces the one in `start`.
    static void begin_with(model_type& model, context<Backend> const& ctx, std::optional<stored_model> const& start,
                           stored_model const* autoencoder) {
        if (start)
            load_calm(ctx, *start, model);
        else
            initialise(ctx, model);
        if (autoencoder != nullptr) load_autoencoder(ctx, *autoencoder, model.ae_model);
    }

    measures_of_calm<C, Space> const& measures_;
};

// Adds the training of configuration C to a work that has its loading, in the same space. Adds
// nothing if weights are held in bf16.
template <model_configuration auto C>
static void add_training_of_calm(std::string const& name, recipes const& defaults, compiled_work& to) {
    using Space = CALM_SPACE;
    if constexpr (is_trainable<Space>) {
        auto const work = std::make_shared<calm_training<C, Space> const>(
            name, defaults, *static_cast<measures_of_calm<C, Space> const*>(to.measures));
        to.train_autoencoder = [work](train_options const& o) { return work->train_autoencoder(o); };
        to.train_calm = [work](train_options const& o) { return work->train_calm(o); };
        to.muon_of_autoencoder = [work] { return work->muon_of_autoencoder(); };
        to.muon_of_model = [work] { return work->muon_of_model(); };
    }
}

// Registers configuration C under a name, for the space that its source file is compiled for. The source files in
// configs/ call it at program start. Objective fields that the defaults leave out keep the values of the head's
// objective type.
template <model_configuration auto C> static bool compile_configuration(std::string const& name, recipes defaults) {
    add_head<std::remove_cvref_t<decltype(C.head)>>();
    defaults.calm.objective = static_cast<typename calm_model<C>::objective>(defaults.calm.objective);
    compiled_work work{loading_of<C>()};
    add_training_of_calm<C>(name, defaults, work);
    return register_configuration(name, with_any_head(C), defaults, name_of_space<CALM_SPACE>, std::move(work));
}

}  // namespace calm::apps
