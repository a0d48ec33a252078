#pragma once
// Everything heavy, once a configuration: included by the units in configs/ and by nothing else.

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
#include "calm/text/bigram.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/utf8_stream.hpp"
#include "calm/train/evaluate.hpp"
#include "calm/train/loop.hpp"
#include "program.hpp"
#include "training_run.hpp"

namespace calm::apps {

// A model with memory of its own.
template <configuration C> struct owned_autoencoder {
    arena<> values{"values"};
    arena<> gradients{"gradients"};
    autoencoder<C.autoencoder> model;
    owned_autoencoder(index_t vocabulary, bool trains) : model(vocabulary) { allocate(model, values, trains ? &gradients : nullptr); }
};
template <configuration C> struct owned_calm {
    arena<> values{"values"};
    arena<> gradients{"gradients"};
    calm_model<C> model;
    owned_calm(index_t vocabulary, bool trains) : model(vocabulary) {
        allocate(model, values, trains ? &gradients : nullptr);
        allocate(model.ae_model, values, static_cast<arena<>*>(nullptr));
    }
};

// The programs' work for one configuration.
template <configuration C> class compiled {
public:
    compiled(std::string name, recipes defaults) : name_(std::move(name)), defaults_(std::move(defaults)) {}

    int train_autoencoder(train_options const& o) const {
        auto recipe = recipe_for(defaults_.autoencoder, o);
        auto const words = tokenizer::load(o.tokenizer);
        auto const data_seed = data_seed_of(o.data);
        auto const text = training_text(o.data, words, data_seed);
        auto const unseen = heldout_text(o.data, words, data_seed, final_tokens);

        context<> ctx(o.seed, o.threads);
        owned_autoencoder<C> own(words.vocabulary_size(), true);
        initialise(ctx, own.model);
        make_directory(o.out);
        run_report report(o.out);
        recipe.machine_peak = measure_peak(ctx);
        describe(report, count_parameters(own.model), text, words);

        auto const description = describe_autoencoder<C.autoencoder>(words.vocabulary_size(), recipe.objective,
                                                                     description_of(name_, o, data_seed, K, words));
        auto const save = [&] { save_autoencoder(o.out, own.model, description, beside(o.tokenizer), if_exists::replace); };
        evaluation_settings settings{.block_tokens = 64 * K, .seed = o.seed};
        auto const measure = [&](std::size_t tokens) {
            return calm::evaluate(ctx, own.model, blocks_of(*unseen, K, settings.block_tokens, data_seed, tokens), words.specials(), settings);
        };
        auto calls = callbacks(report, recipe, save);
        if (unseen)
            calls.evaluate = [&](progress const& now) {
                auto const e = measure(interval_tokens);
                report.log({{"step", now.step + 1}, {"token_accuracy", *e.token_accuracy}, {"token_accuracy_posterior", *e.token_accuracy_posterior}});
                report.say(formatted("step %lld  held-out tokens right %.3f %%, with posterior noise %.3f %%", static_cast<long long>(now.step + 1),
                                     100 * *e.token_accuracy, 100 * *e.token_accuracy_posterior));
            };
        calm::train_autoencoder(ctx, own.model, endless_blocks(text, K, K, o.seed), recipe, calls);
        report.finish();
        save();
        if (unseen) {
            auto const e = measure(final_tokens);
            report.log({{"final", true}, {"token_accuracy", *e.token_accuracy}, {"token_accuracy_posterior", *e.token_accuracy_posterior}});
            report.say(to_table(e));
        }
        return end_of_run(report, o.out);
    }

    int train_calm(train_options const& o) const {
        auto recipe = recipe_for(defaults_.calm, o);
        auto const stored = read_model_description(o.autoencoder);
        auto const words = tokenizer_of(stored);
        auto const data_seed = data_seed_of(o.data, &stored);
        auto const text = training_text(o.data, words, data_seed);
        auto const unseen = heldout_text(o.data, words, data_seed, final_tokens);

        context<> ctx(o.seed, o.threads);
        owned_calm<C> own(words.vocabulary_size(), true);
        load_autoencoder(stored, own.model.ae_model);
        initialise(ctx, own.model);
        auto blocks = endless_blocks(text, K, recipe.block_tokens, o.seed);
        bigram_table const counts(words.vocabulary_size(), packed_tokens(text, {packing::padded, static_cast<std::size_t>(K), o.seed}));
        make_directory(o.out);
        counts.save(o.out + "/" + bigram_file);
        run_report report(o.out);
        recipe.machine_peak = measure_peak(ctx);
        describe(report, count_parameters(own.model), text, words);

        auto const description = describe_calm<C>(words.vocabulary_size(), recipe.objective, autoencoder_objective_of(stored.description),
                                                  description_of(name_, o, data_seed, recipe.block_tokens, words));
        auto const save = [&] { save_calm(o.out, own.model, description, beside(stored.path(description.calm->tokenizer->file)), if_exists::replace); };
        evaluation_settings const settings{.block_tokens = recipe.block_tokens, .seed = o.seed};
        auto const measure = [&](std::size_t tokens) {
            return calm::evaluate(ctx, own.model, blocks_of(*unseen, K, recipe.block_tokens, data_seed, tokens), words.specials(), &counts, settings);
        };
        auto calls = callbacks(report, recipe, save);
        bool judged = false;
        if (unseen)
            calls.evaluate = [&](progress const& now) {
                auto const e = measure(interval_tokens);
                log(report, now.step + 1, e);
                report.say(formatted("step %lld  held-out Brier-1 %.3f (unigram %.3f, bigram %.3f), BrierLM %.2f (bigram %.2f)",
                                     static_cast<long long>(now.step + 1), (*e.brier)[0], (*e.unigram_brier)[0], (*e.bigram_brier)[0],
                                     *e.brier_lm, *e.bigram_brier_lm));
                if (judged || now.done < 0.2) return;
                judged = true;
                if (auto const sentence = verdict((*e.brier)[0], (*e.unigram_brier)[0], recipe.rate); !sentence.empty()) report.say(sentence);
            };
        calm::train_calm(ctx, own.model, std::move(blocks), recipe, calls);
        report.finish();
        save();
        if (unseen) {
            auto const e = measure(final_tokens);
            log(report, 0, e);
            report.say(to_table(e));
        }
        return end_of_run(report, o.out);
    }

    int evaluate(evaluate_options const& o, stored_model const& stored) const {
        auto const& d = stored.description;
        auto const words = tokenizer_of(stored);
        auto const data_seed = data_seed_of(o.data, &stored);
        index_t const trained_on = d.calm && d.calm->data && d.calm->data->block_tokens > K ? d.calm->data->block_tokens : 256;
        evaluation_settings const settings{.block_tokens = o.block > 0 ? o.block : trained_on, .samples = o.samples, .seed = o.seed};
        auto const blocks = blocks_of(evaluation_text(o.data, words, data_seed), K, settings.block_tokens, data_seed);
        context<> ctx(o.seed, o.threads);
        auto const tell = [](evaluation const& e) {
            std::printf("%s\n", to_json(e).c_str());
            std::fprintf(stderr, "%s\n", to_table(e).c_str());
            return 0;
        };
        if (d.kind == model_kind::autoencoder) {
            owned_autoencoder<C> own(words.vocabulary_size(), false);
            load_autoencoder(stored, own.model);
            return tell(calm::evaluate(ctx, own.model, blocks, words.specials(), settings));
        }
        owned_calm<C> own(words.vocabulary_size(), false);
        load_calm(stored, own.model);
        std::optional<bigram_table> counts;
        if (auto const path = stored.path(bigram_file); std::filesystem::exists(path)) counts = bigram_table::load(path);
        return tell(calm::evaluate(ctx, own.model, blocks, words.specials(), counts ? &*counts : nullptr, settings));
    }

    int generate(generate_options const& o, stored_model const& stored) const {
        require(stored.description.kind == model_kind::calm, errc::config,
                [&] { return stored.directory + ": expected a CALM, found an autoencoder: it writes nothing by itself"; });
        auto const words = tokenizer_of(stored);
        owned_calm<C> own(words.vocabulary_size(), false);
        load_calm(stored, own.model);
        context<> ctx(o.seed, o.threads);
        utf8_stream text;
        auto const put = [](std::string const& complete) {
            std::fwrite(complete.data(), 1, complete.size(), stdout);
            std::fflush(stdout);
        };
        put(o.prompt);
        generation_settings const settings{
            .sampler = batch_sampler::at(parse_temperature(o.temperature), o.samples), .max_tokens = o.max_tokens, .seed = o.seed};
        double const start = steady_seconds();
        auto const result = calm::generate(ctx, own.model, words.encode(o.prompt), words.specials(), settings,
                                           [&](std::span<token_id const> fresh) { put(text.push(words.decode(fresh))); });
        put(text.flush() + "\n");
        double const seconds = steady_seconds() - start;
        (void)result, (void)seconds;
        return 0;
    }

private:
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr std::size_t interval_tokens = 2000 * static_cast<std::size_t>(K);
    static constexpr std::size_t final_tokens = 5000 * static_cast<std::size_t>(K);

    static model_files beside(std::string const& tokenizer_path) {
        return {{tokenizer_description{}.file, bytes_of_file(tokenizer_path)}};
    }

    void describe(run_report& report, index_t parameters, corpus const& text, tokenizer const& words) const {
        report.say(formatted("%s: %s parameters to train, a vocabulary of %d, %zu documents of %zu tokens", name_.c_str(),
                             grouped(parameters).c_str(), words.vocabulary_size(), text.documents(), text.tokens()));
    }

    template <class Save> static training_callbacks callbacks(run_report& report, training_recipe const& recipe, Save const& save) {
        note_signals();
        training_callbacks calls;
        calls.start = [&](memory_plan const& plan) { report.plan(plan, recipe.machine_peak); };
        calls.step = [&](progress const& now) { report.step(now); };
        calls.save = [&](progress const&) { save(); };
        calls.stop = [] { return noted_signal() != 0; };
        return calls;
    }

    static void log(run_report& report, index_t step, evaluation const& e) {
        auto const list = [](auto const& scores) { return std::vector<double>(scores.begin(), scores.end()); };
        report.log({{"step", step}, {"brier", list(*e.brier)}, {"brier_lm", *e.brier_lm}, {"unigram_brier", list(*e.unigram_brier)},
                    {"bigram_brier", list(*e.bigram_brier)}, {"bigram_brier_lm", *e.bigram_brier_lm},
                    {"heldout_energy_loss", e.energy_loss.value_or(progress::none)}});
    }

    std::string name_;
    recipes defaults_;
};

// Registers configuration C under a name; a unit in configs/ does it as the program starts.
template <configuration C> bool compile_configuration(std::string const& name, recipes const& defaults) {
    auto const work = std::make_shared<compiled<C> const>(name, defaults);
    return register_configuration({.name = name,
                                   .sizes = C,
                                   .defaults = defaults,
                                   .train_autoencoder = [work](auto const& o) { return work->train_autoencoder(o); },
                                   .train_calm = [work](auto const& o) { return work->train_calm(o); },
                                   .evaluate = [work](auto const& o, auto const& model) { return work->evaluate(o, model); },
                                   .generate = [work](auto const& o, auto const& model) { return work->generate(o, model); }});
}

}  // namespace calm::apps
