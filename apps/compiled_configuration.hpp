#pragma once
// Everything heavy, once a configuration: included by the units in configs/ and by nothing else.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/io/model_directory.hpp"
#include "calm/sample/generate.hpp"
#include "calm/sample/streamed_text.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/train/evaluate.hpp"
#include "calm/train/loop.hpp"
#include "calm/train/peak.hpp"
#include "calm/train/session.hpp"
#include "program.hpp"
#include "training_run.hpp"
#include "writing.hpp"

namespace calm::apps {

// The programs' work for one configuration.
template <configuration C> class compiled {
public:
    compiled(std::string name, recipes const& defaults) : name_(std::move(name)), defaults_(defaults) {}

    int train_autoencoder(train_options const& o) const {
        auto recipe = recipe_for(defaults_.autoencoder, o);
        auto const words = tokenizer_named(o.tokenizer);
        auto const data_seed = data_seed_of(o.data);
        auto const mode = packing_for(packed_for::autoencoder, o.data, words);
        auto const text = training_text(o.data, words, data_seed);
        evaluation_settings const settings{.block_tokens = 64 * K, .seed = o.seed};
        auto const unseen =
            heldout_blocks(o.data, words, {mode, size_of_patch, data_seed}, settings.block_tokens, final_tokens);

        context<> ctx(o.seed, o.threads);
        auto own = make_autoencoder<C>(ctx, words.vocabulary_size());
        text_blocks blocks(text, K, K, o.seed, mode);
        make_directory(o.out);
        run_report report(o.out);
        recipe.machine_peak = measure_peak(ctx);
        describe(report, count_parameters(own.model), text, words);

        auto const description = describe_autoencoder<C.autoencoder>(
            words.vocabulary_size(), recipe.objective, description_of(name_, o, data_seed, K, mode, words));
        auto const save = [&] {
            save_autoencoder(o.out, own.model, description, beside(tokenizer_bytes(o.tokenizer)), if_exists::replace);
        };
        auto const measure = [&](std::size_t tokens, index_t step) {
            auto e = calm::evaluate(ctx, own.model, first_blocks(unseen, settings.block_tokens, tokens),
                                    words.specials(), settings);
            report.log({{"step", step},
                        {"token_accuracy", *e.token_accuracy},
                        {"token_accuracy_posterior", *e.token_accuracy_posterior},
                        {"heldout_posterior_std", *e.posterior_std}});
            return e;
        };
        auto calls = callbacks(report, recipe, save);
        index_t steps = 0;
        calls.evaluate = [&](progress const& now) {
            if (unseen.empty()) return;
            auto const e = measure(interval_tokens, now.step + 1);
            report.say(formatted("step %lld  held-out tokens right %.3f %%, with posterior noise %.3f %%",
                                 static_cast<long long>(now.step + 1), 100 * *e.token_accuracy,
                                 100 * *e.token_accuracy_posterior));
        };
        calls.step = [&](progress const& now) {
            report.step(now);
            steps = now.step + 1;
        };
        calm::train_autoencoder(ctx, own.model, blocks, recipe, calls);
        report.finish();
        save();
        if (!unseen.empty() && noted_signal() == 0) report.say(to_table(measure(final_tokens, steps)));
        return end_of_run(report, o.out);
    }

    int train_calm(train_options const& o) const {
        auto recipe = recipe_for(defaults_.calm, o);
        auto const stored = read_model_description(o.autoencoder);
        auto const words = tokenizer_of(stored);
        auto const data_seed = data_seed_of(o.data, &stored);
        auto const mode = packing_for(packed_for::language_model, o.data, words, &stored);
        auto const text = training_text(o.data, words, data_seed);
        index_t const block = recipe.block_tokens;
        text_blocks blocks(text, K, block, o.seed, mode);
        auto const unseen = heldout_blocks(o.data, words, {mode, size_of_patch, data_seed}, block, final_tokens);
        bigram_table const counts(words.vocabulary_size(), packed_tokens(text, {mode, size_of_patch, o.seed}));

        context<> ctx(o.seed, o.threads);
        resident<calm_model<C>> own(words.vocabulary_size());
        load_autoencoder(stored, own.model.ae_model);
        initialise(ctx, own.model);
        make_directory(o.out);
        counts.save(o.out + "/" + bigram_file);
        run_report report(o.out);
        recipe.machine_peak = measure_peak(ctx);
        describe(report, count_parameters(own.model), text, words);

        auto const description =
            describe_calm<C>(words.vocabulary_size(), recipe.objective, autoencoder_objective_of(stored.description),
                             description_of(name_, o, data_seed, block, mode, words));
        auto const save = [&] {
            save_calm(o.out, own.model, description, beside(bytes_of_file(tokenizer_path(stored))), if_exists::replace);
        };
        evaluation_settings const settings{.block_tokens = block, .seed = o.seed};
        auto const measure = [&](std::size_t tokens, index_t step) {
            auto e = calm::evaluate(ctx, own.model, first_blocks(unseen, block, tokens), words.specials(), &counts,
                                    settings, recipe.objective);
            e.mode = mode_name(mode);
            add_optimum(e, o.data, data_seed);
            auto const list = [](auto const& scores) { return std::vector<double>(scores.begin(), scores.end()); };
            report.log({{"step", step},
                        {"brier", list(*e.brier)},
                        {"brier_lm", *e.brier_lm},
                        {"unigram_brier", list(*e.unigram_brier)},
                        {"bigram_brier", list(*e.bigram_brier)},
                        {"bigram_brier_lm", *e.bigram_brier_lm},
                        {"heldout_loss", *e.energy_loss}});
            return e;
        };
        auto calls = callbacks(report, recipe, save);
        bool judged = false;
        index_t steps = 0;
        calls.evaluate = [&](progress const& now) {
            if (unseen.empty()) return;
            auto const e = measure(interval_tokens, now.step + 1);
            double const brier_1 = (*e.brier)[0];
            double const unigram = (*e.unigram_brier)[0];
            report.say(formatted("step %lld  held-out loss %.4f, Brier-1 %.3f (unigram %.3f, bigram %.3f), "
                                 "BrierLM %.2f (bigram %.2f)",
                                 static_cast<long long>(now.step + 1), *e.energy_loss, brier_1, unigram,
                                 (*e.bigram_brier)[0], *e.brier_lm, *e.bigram_brier_lm));
            if (judged || now.done < 0.2 || now.step < recipe.warmup) return;
            judged = true;
            if (brier_1 <= unigram) report.say(no_context_sentence(brier_1, unigram, recipe.rate));
        };
        calls.step = [&](progress const& now) {
            report.step(now);
            steps = now.step + 1;
        };
        calm::train_calm(ctx, own.model, blocks, recipe, calls);
        report.finish();
        save();
        if (!unseen.empty() && noted_signal() == 0) {
            auto const e = measure(final_tokens, steps);
            report.say(to_table(e));
            report.say(
                formatted("BrierLM %.2f on held-out text, the bigram table %.2f", *e.brier_lm, *e.bigram_brier_lm));
            if (e.optimal_brier_lm)
                report.say(formatted("that is %.1f %% of the optimum, %.2f", 100 * *e.brier_lm / *e.optimal_brier_lm,
                                     *e.optimal_brier_lm));
        }
        return end_of_run(report, o.out);
    }

    evaluation evaluate(evaluate_options const& o, stored_model const& stored) const {
        auto const& d = stored.description;
        auto const words = tokenizer_of(stored);
        auto const data_seed = data_seed_of(o.data, &stored);
        index_t const trained_on =
            d.calm && d.calm->data && d.calm->data->block_tokens > K ? d.calm->data->block_tokens : 256;
        evaluation_settings const settings{.block_tokens = o.block > 0 ? o.block : trained_on,
                                           .samples = o.samples,
                                           .seed = o.seed,
                                           .positions = o.positions,
                                           .sampler = sampler_of(o.sampler, o.temperature, o.pool)};
        auto const use = d.kind == model_kind::autoencoder ? packed_for::autoencoder : packed_for::language_model;
        auto const mode = packing_for(use, o.data, words, &stored);
        auto const blocks =
            evaluation_blocks_of(o.data, words, {mode, size_of_patch, data_seed}, settings.block_tokens);
        context<> ctx(o.seed, o.threads);
        auto const complete = [&](evaluation e) {
            e.mode = mode_name(mode);
            add_optimum(e, o.data, data_seed);
            return e;
        };
        if (d.kind == model_kind::autoencoder) {
            resident<autoencoder<C.autoencoder>> own(words.vocabulary_size(), held_for::use);
            load_autoencoder(stored, own.model);
            return complete(calm::evaluate(ctx, own.model, blocks, words.specials(), settings));
        }
        resident<calm_model<C>> own(words.vocabulary_size(), held_for::use);
        load_calm(stored, own.model);
        std::optional<bigram_table> counts;
        if (auto const path = stored.path(bigram_file); std::filesystem::exists(path))
            counts = bigram_table::load(path);
        return complete(calm::evaluate(ctx, own.model, blocks, words.specials(), counts ? &*counts : nullptr, settings,
                                       energy_objective_of(d)));
    }

    int generate(generate_options const& o, stored_model const& stored) const {
        require(stored.description.kind == model_kind::calm, errc::config, [&] {
            return stored.directory + ": expected a CALM, found an autoencoder: it writes nothing by itself";
        });
        auto const words = tokenizer_of(stored);
        resident<calm_model<C>> own(words.vocabulary_size(), held_for::use);
        load_calm(stored, own.model);
        context<> ctx(o.seed, o.threads);
        auto const put = [](std::string const& complete) {
            std::fwrite(complete.data(), 1, complete.size(), stdout);
            std::fflush(stdout);
        };
        auto const prompts = prompts_of(o);
        std::vector<std::vector<token_id>> begun;
        begun.reserve(prompts.size());
        for (auto const& prompt : prompts) begun.push_back(words.encode(prompt));
        bool const streaming = prompts.size() == 1;
        streamed_text stream(words);
        if (streaming) put(prompts[0]);
        double const start = steady_seconds();
        auto const made =
            calm::generate(ctx, own.model, std::span<std::vector<token_id> const>(begun), words.specials(),
                           generation_settings_of(o), [&](std::size_t, std::span<token_id const> fresh) {
                               if (streaming) put(stream.push(fresh));
                           });
        double const seconds = steady_seconds() - start;
        if (streaming) put(stream.flush() + "\n");
        for (std::size_t i = 0; i < made.size() && !streaming; ++i)
            put(formatted("=== %zu\n", i + 1) + prompts[i] + words.decode(made[i].tokens) + "\n");
        std::fprintf(stderr, "%s\n", statistics(made, seconds).c_str());
        return 0;
    }

private:
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr auto size_of_patch = static_cast<std::size_t>(K);
    static constexpr std::size_t interval_tokens = 2000 * static_cast<std::size_t>(K);
    static constexpr std::size_t final_tokens = 5000 * static_cast<std::size_t>(K);

    static model_files beside(std::string const& tokenizer_bytes) {
        return {{tokenizer_description{}.file, tokenizer_bytes}};
    }

    void describe(run_report& report, index_t parameters, corpus const& text, tokenizer const& words) const {
        report.say(formatted("%s: %s parameters to train, a vocabulary of %d, %zu documents of %zu tokens",
                             name_.c_str(), grouped(parameters).c_str(), words.vocabulary_size(), text.documents(),
                             text.tokens()));
    }

    template <class Save>
    static training_callbacks callbacks(run_report& report, training_recipe const& recipe, Save const& save) {
        note_signals();
        training_callbacks calls;
        calls.start = [&](memory_plan const& plan) { report.plan(plan, recipe.machine_peak); };
        calls.save = [&](progress const&) { save(); };
        calls.stop = [] { return noted_signal() != 0; };
        return calls;
    }

    std::string name_;
    recipes defaults_;
};

// Registers configuration C under a name; a unit in configs/ does it as the program starts.
template <configuration C> bool compile_configuration(std::string const& name, recipes const& defaults) {
    auto const work = std::make_shared<compiled<C> const>(name, defaults);
    return register_configuration(
        {.name = name,
         .sizes = C,
         .defaults = defaults,
         .train_autoencoder = [work](auto const& o) { return work->train_autoencoder(o); },
         .train_calm = [work](auto const& o) { return work->train_calm(o); },
         .evaluate = [work](auto const& o, auto const& model) { return work->evaluate(o, model); },
         .generate = [work](auto const& o, auto const& model) { return work->generate(o, model); }});
}

}  // namespace calm::apps
