#pragma once
// The programs' training of an autoregressive model; compiled_configuration.hpp has a CALM's.

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
            return completed(measures_.score(ctx, own.model, spread_blocks(unseen, block, tokens), tokenizer.specials(),
                                             counts, {.block_tokens = block, .seed = o.seed}, bytes, ranks()),
                             mode, o.data, data_seed);
        };
        return learn(run, recipe, blocks, levels, o, 1,
                     {.write =
                          [&](std::string const& to) {
                              save_autoregressive(ctx, to, own.model, description, files);
                              counts.save(to + "/" + std::string(bigram_file));
                          },
                      .sample =
                          [&] {
                              return tokenizer.decode(
                                  measures_.sample(ctx, own.model, tokenizer.specials(), sample_prompt));
                          },
                      .measure = measure,
                      .remark = [&] { return remark_on(unsupported_by(ctx)); },
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

// Adds the training of configuration C to a work that has its loading, in the same space. Adds
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
    compiled_work work{loading_of<C>()};
    add_training_of_autoregressive<C>(name, defaults, work);
    return register_configuration(name, C, defaults, name_of_space<CALM_SPACE>, std::move(work));
}

}  // namespace calm::apps
