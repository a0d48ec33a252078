#pragma once
// The programs' work for an autoregressive model, in two parts as in compiled_configuration.hpp, which has a CALM's.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/model/autoregressive.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "compiled_model.hpp"

namespace calm::apps {

// What training calls to score and to sample its model; see measures_of_calm.
template <autoregressive_configuration C, class Space> struct measures_of_autoregressive {
    using model_type = autoregressive_model<C, Space>;
    using context_type = context<typename Space::backend>;

    evaluation (*score)(context_type&, model_type&, std::span<token_id const> blocks, special_tokens const&,
                        bigram_table const&, token_evaluation_settings const&,
                        std::span<index_t const> bytes_of_tokens);
    std::string (*sample)(context_type&, model_type const&, tokenizer const&,
                          std::vector<std::vector<token_id>> const& prompt);
};

// Evaluates and generates with configuration C in one space.
template <autoregressive_configuration C, class Space> class autoregressive_in_use : compiled_model {
    using Backend = typename Space::backend;
    using model_type = autoregressive_model<C, Space>;

public:
    autoregressive_in_use(std::string name, recipes const& defaults) : compiled_model(std::move(name), defaults) {}

    evaluation evaluate(evaluate_options const& o, stored_model const& stored) const {
        auto const tokenizer = load_tokenizer(stored);
        log_another_holdout(stored, o.data);
        auto const data_seed = data_seed_of(o.data, &stored);
        token_evaluation_settings const settings{.block_tokens = evaluation_block(o, stored.description, 1),
                                                 .samples = o.samples,
                                                 .seed = o.seed,
                                                 .positions = o.positions,
                                                 .sampler = token_sampler_of(o.sampler, o.temperature)};
        auto const mode = packing_for(packed_for::language_model, o.data, tokenizer, &stored);
        auto const blocks = with_progress(
            evaluation_blocks_of(o.data, tokenizer, {mode, 1, data_seed}, settings.block_tokens), o.positions);
        auto ctx = context_of<Backend>(o);
        auto own = loaded(ctx, stored, tokenizer);
        auto const counts = counts_beside(stored);
        auto const bytes = bytes_of_tokens(tokenizer);
        auto const found = calm::evaluate_model(ctx, own.model, blocks, tokenizer.specials(),
                                                counts ? &*counts : nullptr, settings, std::span(bytes), ranks());
        log_products(ctx);
        return complete(found, mode, o.data, data_seed);
    }

    int generate(generate_options const& o, stored_model const& stored) const {
        auto const tokenizer = load_tokenizer(stored);
        auto ctx = context_of<Backend>(o);
        auto const own = loaded(ctx, stored, tokenizer);
        return write(ctx, o, stored, tokenizer, own.model, token_generation_settings_of(o));
    }

    double seconds_per_patch(stored_model const& stored, execution_options const& o) const {
        auto const tokenizer = load_tokenizer(stored);
        auto ctx = context_of<Backend>(o);
        auto const own = loaded(ctx, stored, tokenizer);
        return seconds_of_writing(ctx, own.model, tokenizer);
    }

    static constexpr measures_of_autoregressive<C, Space> measures = {
        [](context<Backend>& ctx, model_type& model, std::span<token_id const> blocks, special_tokens const& special,
           bigram_table const& counts, token_evaluation_settings const& settings,
           std::span<index_t const> bytes_of_tokens) {
            return calm::evaluate_model(ctx, model, blocks, special, &counts, settings, bytes_of_tokens, ranks());
        },
        [](context<Backend>& ctx, model_type const& model, tokenizer const& tokenizer,
           std::vector<std::vector<token_id>> const& prompt) { return sample(ctx, model, tokenizer, prompt); }};

private:
    static owned_model<model_type> loaded(context<Backend> const& ctx, stored_model const& stored,
                                          tokenizer const& tokenizer) {
        owned_model<model_type> own(tokenizer.vocabulary_size(), model_mode::inference);
        load_autoregressive(ctx, stored, own.model);
        return own;
    }
};

// Trains configuration C in one space.
template <autoregressive_configuration C, class Space> class autoregressive_training : compiled_model {
    using Backend = typename Space::backend;
    using model_type = autoregressive_model<C, Space>;

public:
    // The measures must outlive this.
    autoregressive_training(std::string name, recipes const& defaults,
                            measures_of_autoregressive<C, Space> const& measures) :
        compiled_model(std::move(name), defaults),
        measures_(measures) {}

    int train(train_options const& o) const {
        refuse_same_directory(o);
        training_run run(o);
        auto recipe = recipe_for(defaults_.autoregressive, o);
        run.keep_as_begun(recipe);
        log_together<Backend>(recipe);
        auto const tokenizer = tokenizer_named(o.tokenizer, o.pattern);
        auto const data_seed = data_seed_of(o.data);
        auto const mode = packing_for(packed_for::language_model, o.data, tokenizer);
        index_t const block = recipe.block_tokens;
        packing_rule const rule{mode, 1, o.seed};
        auto const unseen = heldout_blocks(o.data, tokenizer, {mode, 1, data_seed}, block, final_tokens(o, 1));
        auto const sample_prompt = prompt_of_samples(o, tokenizer, 1, block);
        if (o.dry_run)
            return print_plan(plan(recipe, o, tokenizer,
                                   size_of_training_text(o.data, tokenizer, data_seed, rule, block), unseen.size()),
                              o);
        auto const text = run.text(tokenizer, data_seed);
        text_blocks blocks(text, 1, block, o.seed, mode);
        auto const counts = bigrams_of(text, tokenizer.vocabulary_size(), rule);
        auto const ours = description_of(name_, o, data_seed, block, mode, tokenizer);
        auto const files = beside(tokenizer, tokenizer_bytes(o.tokenizer));  // read before training
        auto const levels = levels_of(o, ours, tokenizer.vocabulary_size());
        auto const start = initial_model(run.from() ? run.from()->directory : "", o, tokenizer);
        auto const fits = [&] { require_fit(C, tokenizer, start); };
        if (!run.begin(settings_of("ar", ours, o, text, nullptr, record_of(recipe, o.seed)), recipe, !unseen.empty(),
                       fits))
            return 0;
        auto ctx = context_of<Backend>(o);
        auto const devices = devices_of(ctx, o.device);
        owned_model<model_type> own(tokenizer.vocabulary_size());
        begin(ctx, start, own.model);
        run.seek(blocks);
        recipe.machine_peak = measure_peak(ctx);
        describe(run.report(), count_parameters(own.model), text, tokenizer, place_of<Space>(o));
        log_patch_level(run.report(), recipe.level);

        auto description = describe_autoregressive<C>(tokenizer.vocabulary_size(), ours);
        description.max_position_embeddings = positions_of(block, start);
        set_special_ids(description, tokenizer.specials());
        auto const bytes = bytes_of_tokens(tokenizer);
        auto const measure = [&](std::size_t tokens) {
            return complete(measures_.score(ctx, own.model, spread_blocks(unseen, block, tokens), tokenizer.specials(),
                                            counts, {.block_tokens = block, .seed = o.seed}, bytes),
                            mode, o.data, data_seed);
        };
        return learn(run, recipe, blocks, levels, o, 1,
                     {.write =
                          [&](std::string const& to) {
                              save_autoregressive(ctx, to, own.model, description, files);
                              counts.save(to + "/" + std::string(bigram_file));
                          },
                      .sample = [&] { return measures_.sample(ctx, own.model, tokenizer, sample_prompt); },
                      .measure = measure,
                      .remark = [&] { return remark_on_products(ctx); },
                      .train =
                          [&](training_callbacks const& calls) {
                              calm::train_autoregressive(ctx, own.model, next_of(blocks), recipe, calls, ranks());
                          }});
    }

    // Muon's FLOPs per update; they do not depend on the vocabulary.
    [[nodiscard]] double muon_of_model() const { return muon_of(model_type(C.vocab_size)); }

private:
    // Initialises the weights: loaded from a stored model or drawn at random.
    static void begin(context<Backend>& ctx, std::optional<stored_model> const& start, model_type& model) {
        if (start)
            load_autoregressive(ctx, *start, model);
        else
            initialise(ctx, model);
    }

    run_plan plan(autoregressive_recipe const& recipe, train_options const& o, tokenizer const& tokenizer,
                  text_size const& text, std::size_t heldout) const {
        auto ctx = context_of<Backend>(o);
        owned_model<model_type> own(tokenizer.vocabulary_size());
        auto plan = plan_of(recipe, count_parameters(own.model), tokenizer, text, heldout,
                            recipe.sequences * recipe.block_tokens);
        plan.muon_flops = recipe.optimizer.muon > 0 ? muon_of_model() : 0;
        plan.flops_per_token = flops::train_autoregressive(C.llama, tokenizer.vocabulary_size(), recipe.block_tokens);
        plan.level = recipe.level;
        calm::train_autoregressive(ctx, own.model, no_blocks(), recipe, only_the_plan(plan.memory, recipe));
        return plan;
    }

    measures_of_autoregressive<C, Space> const& measures_;
};

// Adds evaluation and generation of configuration C, in the space that its source file is compiled for.
template <autoregressive_configuration C>
static void add_use_of_autoregressive(std::string const& name, recipes const& defaults, compiled_work& to) {
    using use = autoregressive_in_use<C, CALM_SPACE>;
    add_use<typename CALM_SPACE::backend>(std::make_shared<use const>(name, defaults), to);
    to.measures = &use::measures;
}

// Adds the training of configuration C to a work that has its evaluation and generation, in the same space. Adds
// nothing if weights are held in bf16.
template <autoregressive_configuration C>
static void add_training_of_autoregressive(std::string const& name, recipes const& defaults, compiled_work& to) {
    using Space = CALM_SPACE;
    if constexpr (is_trainable<Space>) {
        auto const work = std::make_shared<autoregressive_training<C, Space> const>(
            name, defaults, *static_cast<measures_of_autoregressive<C, Space> const*>(to.measures));
        to.train_autoregressive = [work](train_options const& o) { return work->train(o); };
        to.muon_of_model = [work] { return work->muon_of_model(); };
    }
}

// Registers configuration C under a name, for the space that its source file is compiled for. The source files in
// configs/ call it at program start.
template <autoregressive_configuration C>
static bool compile_autoregressive(std::string const& name, recipes const& defaults) {
    compiled_work work;
    add_use_of_autoregressive<C>(name, defaults, work);
    add_training_of_autoregressive<C>(name, defaults, work);
    return register_configuration(name, C, defaults, name_of_space<CALM_SPACE>, std::move(work));
}

}  // namespace calm::apps
