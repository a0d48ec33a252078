#pragma once
// The same as compiled_configuration.hpp for an autoregressive model.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/model/autoregressive.hpp"
#include "compiled_model.hpp"

namespace calm::apps {

// The programs' work for one configuration of an autoregressive model.
template <autoregressive_configuration C> class compiled_autoregressive : compiled_model {
public:
    compiled_autoregressive(std::string name, recipes const& defaults) : compiled_model(std::move(name), defaults) {}

    int train(train_options const& o) const {
        refuse_same_directory(o);
        training_run run(o);
        auto recipe = recipe_for(defaults_.autoregressive, o);
        run.keep_warmup(recipe);
        auto const words = tokenizer_named(o.tokenizer);
        auto const data_seed = data_seed_of(o.data);
        auto const mode = packing_for(packed_for::language_model, o.data, words);
        index_t const block = recipe.block_tokens;
        packing_rule const rule{mode, 1, o.seed};
        auto const unseen = heldout_blocks(o.data, words, {mode, 1, data_seed}, block, final_tokens);
        auto const sample_prompt = prompt_of_samples(o, words, 1);
        if (o.dry_run)
            return tell(
                plan(recipe, o, words, size_of_training_text(o.data, words, data_seed, rule, block), unseen.size()), o);
        auto const text = training_text(o.data, words, data_seed);
        text_blocks blocks(text, 1, block, o.seed, mode);
        auto const counts = bigrams_of(text, words, rule);
        auto const ours = description_of(name_, o, data_seed, block, mode, words);
        auto const files = beside(words, tokenizer_bytes(o.tokenizer));  // as they are now
        auto const levels = levels_of(o, ours, words.vocabulary_size());
        auto const start = initial_model(run.from() ? run.from()->directory : "", o, words);
        auto const fits = [&] { require_fit(C, words, start); };
        if (!run.begin(settings_of("ar", ours, o, text, nullptr, record_of(recipe, o.seed)), recipe, !unseen.empty(),
                       fits))
            return 0;
        samples_log samples(o.out, run.steps());
        context<> ctx(o.seed, o.threads);
        resident<model_type> own(words.vocabulary_size());
        if (start)
            load_autoregressive(*start, own.model);
        else
            initialise(ctx, own.model);
        run.go_on(blocks);
        recipe.machine_peak = measure_peak(ctx);
        describe(run.report(), count_parameters(own.model), text, words);
        tell_of_patch_level(run.report(), recipe.level);

        auto const description = describe_autoregressive<C>(words.vocabulary_size(), ours);
        auto const bytes = bytes_of_tokens(words);
        auto const measure = [&](std::size_t tokens) {
            return complete(calm::evaluate_model(
                                ctx, own.model, std::span<token_id const>(spread_blocks(unseen, block, tokens)),
                                words.specials(), &counts, {.block_tokens = block, .seed = o.seed}, std::span(bytes)),
                            mode, o.data, data_seed);
        };
        auto const calls = run.callbacks(
            recipe, blocks,
            [&](std::string const& directory) {
                save_autoregressive(directory, own.model, description, files);
                counts.save(directory + "/" + std::string(bigram_file));
            },
            [&](progress const& now) {
                samples.add(now.step + 1, now.seconds, o.sample_prompt, sample(ctx, own.model, words, sample_prompt));
                return told(run.report(), measure(interval_tokens), now, recipe, levels);
            },
            [&] { return score_of(measure(interval_tokens)); });
        run.train([&] { calm::train_autoregressive(ctx, own.model, next_of(blocks), recipe, calls); });
        if (!unseen.empty() && noted_signal() == 0)
            tell_final(run.report(), measure(final_tokens), run.steps(), run.seconds(), levels);
        return run.end();
    }

    evaluation evaluate(evaluate_options const& o, stored_model const& stored) const {
        auto const words = tokenizer_of(stored);
        tell_of_another_holdout(stored, o.data);
        auto const data_seed = data_seed_of(o.data, &stored);
        token_evaluation_settings const settings{.block_tokens = evaluation_block(o, stored.description, 1),
                                                 .samples = o.samples,
                                                 .seed = o.seed,
                                                 .positions = o.positions,
                                                 .sampler = token_sampler_of(o.sampler, o.temperature)};
        auto const mode = packing_for(packed_for::language_model, o.data, words, &stored);
        auto const blocks = evaluation_blocks_of(o.data, words, {mode, 1, data_seed}, settings.block_tokens);
        context<> ctx(o.seed, o.threads);
        auto own = loaded(stored, words);
        auto const counts = counts_beside(stored);
        auto const bytes = bytes_of_tokens(words);
        return complete(calm::evaluate_model(ctx, own.model, blocks, words.specials(), counts ? &*counts : nullptr,
                                             settings, std::span(bytes)),
                        mode, o.data, data_seed);
    }

    int generate(generate_options const& o, stored_model const& stored) const {
        auto const words = tokenizer_of(stored);
        auto const own = loaded(stored, words);
        return write(o, stored, words, own.model, token_generation_settings_of(o));
    }

    double seconds_per_token(stored_model const& stored, std::uint64_t seed, int threads) const {
        auto const words = tokenizer_of(stored);
        auto const own = loaded(stored, words);
        return seconds_of_writing(own.model, words, seed, threads);
    }

private:
    using model_type = autoregressive_model<C>;
    // As many positions as a CALM of 4 tokens a patch is measured on.
    static constexpr std::size_t interval_tokens = 2000;
    static constexpr std::size_t final_tokens = 5000;

    static resident<model_type> loaded(stored_model const& stored, tokenizer const& words) {
        resident<model_type> own(words.vocabulary_size(), held_for::use);
        load_autoregressive(stored, own.model);
        return own;
    }

    run_plan plan(autoregressive_recipe const& recipe, train_options const& o, tokenizer const& words,
                  text_size const& text, std::size_t heldout) const {
        context<> ctx(o.seed, o.threads);
        resident<model_type> own(words.vocabulary_size());
        auto plan =
            plan_of(recipe, count_parameters(own.model), words, text, heldout, recipe.sequences * recipe.block_tokens);
        plan.flops_per_token = flops::train_autoregressive(C.llama, words.vocabulary_size(), recipe.block_tokens);
        plan.level = recipe.level;
        calm::train_autoregressive(ctx, own.model, no_blocks(), recipe, only_the_plan(plan.memory, recipe));
        return plan;
    }
};

// Registers configuration C under a name; a unit in configs/ does it as the program starts.
template <autoregressive_configuration C>
bool compile_autoregressive(std::string const& name, recipes const& defaults) {
    auto const work = std::make_shared<compiled_autoregressive<C> const>(name, defaults);
    return register_configuration(
        {.name = name,
         .sizes = C,
         .defaults = defaults,
         .train_autoregressive = [work](auto const& o) { return work->train(o); },
         .evaluate = [work](auto const& o, auto const& model) { return work->evaluate(o, model); },
         .generate = [work](auto const& o, auto const& model) { return work->generate(o, model); },
         .seconds_per_patch = [work](auto const& model, std::uint64_t seed,
                                     int threads) { return work->seconds_per_token(model, seed, threads); }});
}

}  // namespace calm::apps
