// A run without a training loop: files kept, when it counts as finished, and other processes.

#include <boost/test/unit_test.hpp>

#include "run/training_run.hpp"

#include <filesystem>
#include <functional>
#include <utility>

#include "calm/io/convert_model.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "calm/text/markov.hpp"
#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/standard_error.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

void write_model(std::string const& directory) {
    replaced_directory target(directory);
    target.write("config.json", "{}\n");
    target.commit();
}

// A run of 13 steps, the last of which is not a multiple of ten and so not logged as such.
struct trial {
    temporary_folder folder;
    train_options options;
    training_recipe recipe;
    tokenizer words = tokenizer::of_symbols(markov_alphabet);
    corpus text;
    recipe_record settings{{"data", "markov:400"}, {"learning-rate", "1"}};

    trial() : text(markov()) {
        options.out = folder.path("run");
        recipe.steps = 13;
    }
    corpus markov() const {
        data_options data;
        data.sources = {"markov:400"};
        return training_text(data, words, 1);
    }

    // Continues up to `step`, scores it, and calls `after`. False if nothing is left to do.
    bool steps_to(index_t step, double score, std::function<void(run_report&)> const& after = nullptr) {
        training_run run(options);
        if (!run.begin(settings, recipe, true, [] {})) return false;
        text_blocks const blocks(text, 2, 2, 1, packing::unbroken);
        auto const calls = run.callbacks(
            recipe, blocks, write_model, [](progress const&) { return 0.0; }, [&] { return score; });
        for (index_t i = run.steps(); i < step; ++i) calls.step({.step = i, .loss = 1});
        calls.ended({.step = step - 1, .loss = 1});
        calls.checkpoint({.step = step, .updates = step, .skipped = 0, .seconds = 1, .optimizer_state = {}},
                         state_after::end);
        if (after) after(run.report());
        return true;
    }
};

}  // namespace

// A run that ends between its last checkpoint and its last evaluation is not finished.
BOOST_AUTO_TEST_CASE(a_run_is_finished_once_its_end_is_measured) {
    trial t;
    BOOST_TEST(t.steps_to(13, 1, [](run_report& report) { report.finish(); }));
    auto const log = t.folder.content("run/metrics.jsonl");
    BOOST_TEST(has(log, "\"step\":13,"));
    BOOST_TEST(t.steps_to(13, 1, [](run_report& report) {
        report.finish();
        report.log({{"step", index_t{13}}, {"brier_lm", 1.0}});
    }));
    BOOST_TEST(t.folder.content("run/metrics.jsonl") == log + "{\"step\":13,\"brier_lm\":1}\n");
    BOOST_TEST(!t.steps_to(13, 1));
}

// The step at which a run is stopped is logged only if it would be logged anyway.
BOOST_AUTO_TEST_CASE(a_run_that_is_stopped_leaves_no_line) {
    trial t;
    BOOST_TEST(t.steps_to(12, 1));
    BOOST_TEST(!has(t.folder.content("run/metrics.jsonl"), "\"step\":12,"));
    BOOST_TEST(t.steps_to(13, 1));
    BOOST_TEST(has(t.folder.content("run/metrics.jsonl"), "\"step\":13,"));
}

BOOST_AUTO_TEST_CASE(a_run_that_another_process_began_meanwhile_is_kept) {
    trial t;
    training_run late(t.options);
    BOOST_TEST(t.steps_to(5, 1));
    BOOST_TEST(
        has(sentence_of<error>([&] { late.begin(t.settings, t.recipe, true, [] {}); }), "was started here meanwhile"));
    BOOST_TEST(std::filesystem::exists(t.folder.path("run/checkpoints/step-00000005")));
}

// A run keeps the ids of its text where they are resumed from. Until begin() accepts it, nothing there changes.
BOOST_AUTO_TEST_CASE(a_run_keeps_its_text_in_its_directory) {
    trial t;
    t.words = tokenizer();
    t.options.data.sources = {t.folder.with("a.jsonl", "{\"text\": \"some text\"}\n")};
    auto const path = t.folder.path("run/text.tokens");
    auto const exists = [](std::string const& file) { return std::filesystem::exists(file); };
    auto const begin = [&](training_run& run) {
        static_cast<void>(run.text(t.words, 1));
        run.begin(t.settings, t.recipe, true, [] {});
    };
    {
        training_run run(t.options);
        BOOST_TEST(run.text(t.words, 1).documents() == 1U);
        BOOST_TEST(exists(path + ".new"));
        BOOST_TEST(!exists(path));
    }
    BOOST_TEST(!exists(t.options.out));
    BOOST_TEST(t.steps_to(5, 1));
    {
        training_run run(t.options);
        begin(run);
    }
    BOOST_TEST(exists(path));
    BOOST_TEST(!exists(path + ".new"));
    auto const before = t.folder.content("run/text.tokens");
    static_cast<void>(t.folder.with("a.jsonl", "{\"text\": \"another text\"}\n"));
    static_cast<void>(training_run(t.options).text(t.words, 1));
    BOOST_TEST(!exists(path + ".new"));
    BOOST_TEST((t.folder.content("run/text.tokens") == before));
    std::filesystem::remove(path);
    // Stages that share a text keep it elsewhere.
    t.options.tokens = t.folder.path("shared.tokens");
    {
        training_run run(t.options);
        begin(run);
    }
    BOOST_TEST(exists(t.options.tokens));
    BOOST_TEST(!exists(path));
    // Generated text is made again.
    t.options.tokens.clear();
    t.options.data.sources = {"stories:100"};
    static_cast<void>(training_run(t.options).text(t.words, 1));
    BOOST_TEST(!exists(path));
    BOOST_TEST(!exists(path + ".new"));
}

// The text of a new run is stored before its settings are compared, so another process may begin meanwhile.
BOOST_AUTO_TEST_CASE(a_text_is_not_stored_in_a_run_that_began_meanwhile) {
    trial t;
    t.options.data.sources = {t.folder.with("a.jsonl", "{\"text\": \"some text\"}\n")};
    training_run late(t.options);
    BOOST_TEST(t.steps_to(5, 1));
    BOOST_TEST(
        has(sentence_of<error>([&] { static_cast<void>(late.text(tokenizer(), 1)); }), "was started here meanwhile"));
    BOOST_TEST(!std::filesystem::exists(t.folder.path("run/text.tokens")));
}

BOOST_AUTO_TEST_CASE(a_model_without_a_checkpoint_is_not_overwritten) {
    trial t;
    BOOST_TEST(t.steps_to(5, 1));
    std::filesystem::remove_all(t.folder.path("run/checkpoints"));
    static_cast<void>(t.folder.with("run/model.safetensors", "weights"));
    BOOST_TEST(has(sentence_of<error>([&] { t.steps_to(13, 1); }), "holds a model, but no checkpoint to resume from"));
    BOOST_TEST(t.folder.content("run/model.safetensors") == "weights");
    t.options.fresh = true;
    BOOST_TEST(t.steps_to(13, 1));
    BOOST_TEST(!std::filesystem::exists(t.folder.path("run/model.safetensors")));
}

BOOST_AUTO_TEST_CASE(a_run_whose_model_does_not_fit_is_left_as_it_is) {
    trial t;
    BOOST_TEST(t.steps_to(5, 1));
    auto const log = t.folder.content("run/metrics.jsonl");
    training_run other(t.options);
    auto const refuse = [] { throw error(errc::config, "of another kind"); };
    BOOST_TEST(sentence_of<error>([&] { other.begin(t.settings, t.recipe, true, refuse); }) == "of another kind");
    BOOST_TEST(t.folder.content("run/metrics.jsonl") == log);
}

BOOST_AUTO_TEST_CASE(inputs_are_never_overwritten) {
    trial t;
    std::filesystem::create_directory(t.options.out);
    BOOST_CHECK_NO_THROW(refuse_same_directory(t.options));
    t.options.autoencoder = t.folder.path("run/../run");
    BOOST_TEST(has(sentence_of<error>([&] { refuse_same_directory(t.options); }), "is the directory of --autoencoder"));
    t.options.autoencoder = t.folder.path("none");
    t.options.init = t.options.out;
    BOOST_TEST(has(sentence_of<error>([&] { refuse_same_directory(t.options); }), "is the directory of --init"));
}

// An edit is detected at any place of a text with many documents, however small it is.
BOOST_AUTO_TEST_CASE(settings_hold_every_token_of_the_text) {
    trial t;
    auto const ours = description_of("tiny", t.options, 1, 2, packing::unbroken, t.words);
    std::vector<std::vector<token_id>> documents(1000, {1, 2, 3});
    documents[500].clear();
    auto const settings = [&] {
        corpus text(t.words.specials());
        for (auto const& one : documents) text.add(one);
        return settings_of("autoencoder", ours, t.options, text, nullptr, {});
    };
    auto const before = settings();
    BOOST_TEST(differences(before, settings()).empty());
    for (std::size_t const i : {0U, 1U, 421U, 999U}) {
        documents[i][1] = 7;
        auto const found = differences(before, settings());
        BOOST_TEST_REQUIRE(found.size() == 1U);
        BOOST_TEST(found[0].option == "text");
        documents[i][1] = 2;
    }
    std::swap(documents[500], documents[501]);  // equal tokens in other documents
    BOOST_TEST(differences(before, settings()).size() == 1U);
}

// Reported at the first evaluation after a fifth of the run and after the warm-up, and only there.
BOOST_AUTO_TEST_CASE(a_model_without_context_is_reported_once) {
    trial t;
    t.recipe.learning_rate = 2e-3;
    t.recipe.warmup = 100;
    std::filesystem::create_directory(t.options.out);
    struct at {
        index_t step;
        double done;
        double brier_1;
    };
    auto const said = [&](std::vector<at> const& evaluations) {
        run_report report(t.options.out, 0);
        return standard_error_of([&] {
            for (auto const& each : evaluations) {
                evaluation e;
                e.brier = brier_scores{each.brier_1, 0.01, 0.001, -0.0001};
                e.brier_lm = brier_lm(*e.brier);
                e.unigram_brier = brier_scores{0.02, 0, 0, 0};
                e.bigram_brier = brier_scores{0.05, 0.01, 0.001, 0.0001};
                e.bigram_brier_lm = brier_lm(*e.bigram_brier);
                e.head_loss = 7;
                report_evaluation(report, e, {.step = each.step, .done = each.done}, t.recipe,
                                  {.helps = "HELP", .baseline = {}});
            }
        });
    };
    auto const times = [](std::string const& text) {
        int count = 0;
        for (auto at = text.find("no context"); at != std::string::npos; at = text.find("no context", at + 1)) ++count;
        return count;
    };
    BOOST_TEST(times(said({{199, 0.2, 0.01}})) == 1);
    BOOST_TEST(times(said({{199, 0.2, 0.02}, {299, 0.3, 0.01}, {399, 0.4, 0.01}})) == 1);  // equal is not above
    BOOST_TEST(times(said({{199, 0.19, 0.01}})) == 0);                                     // too early in the run
    BOOST_TEST(times(said({{99, 0.5, 0.01}})) == 0);                                       // in the warm-up
    BOOST_TEST(times(said({{199, 0.19, 0.01}, {299, 0.3, 0.01}})) == 1);
    BOOST_TEST(times(said({{199, 0.2, 0.03}, {299, 0.3, 0.01}})) == 0);  // it had learned some context
    BOOST_TEST(has(said({{199, 0.2, 0.03}}), "BrierLM 0.00 (bigram 0.27), 0 because Brier-4 is not positive"));
    BOOST_TEST(has(said({{199, 0.2, 0.01}}), "these have helped before: HELP\n"));
}

BOOST_AUTO_TEST_CASE(an_autoencoder_ends_with_how_much_was_scored) {
    trial t;
    std::filesystem::create_directory(t.options.out);
    run_report report(t.options.out, 0);
    autoencoder_evaluation const e{.token_accuracy = 0.5,
                                   .token_accuracy_posterior = 0.25,
                                   .posterior_std = 0.3,
                                   .cross_entropy = 2,
                                   .patches = 77};
    BOOST_TEST(
        standard_error_of([&] { log_final(report, e, 20); }) ==
        "autoencoder, 77 patches: 50.000 % of tokens right, 25.000 % with posterior noise; posterior std 0.300\n");
}

// Scores are shown next to reference levels, and the numbers are logged.
BOOST_AUTO_TEST_CASE(scores_are_reported_with_their_baselines) {
    trial t;
    std::filesystem::create_directory(t.options.out);
    baseline_scores const baseline(
        read_metrics(t.folder.with("ar.jsonl", "{\"step\":10,\"seconds\":100,\"loss\":2}\n"
                                               "{\"step\":10,\"brier\":[0.2,0.1,0.1,0.1],\"brier_lm\":2}\n")),
        "ar");
    run_report report(t.options.out, 0);
    evaluation e;
    e.brier = brier_scores{0.132, 0.01, 0.001, 0.0001};
    e.brier_lm = 0.9;
    e.unigram_brier = brier_scores{0.069, 0.002, 0, 0};
    e.bigram_brier = brier_scores{0.16, 0.02, 0.001, 0.0001};
    e.bigram_brier_lm = 0.8;
    e.head_loss = 7;
    learning_levels const levels{.helps = "", .baseline = baseline};
    BOOST_TEST(standard_error_of([&] { report_evaluation(report, e, {.step = 9, .seconds = 99}, t.recipe, levels); }) ==
               "step 10  held-out loss 7.0000, Brier-1 0.132 (unigram 0.069, bigram 0.160), BrierLM 0.90 (bigram "
               "0.80)\n");
    BOOST_TEST(standard_error_of([&] {
                   report_evaluation(report, e, {.step = 19, .seconds = 150}, t.recipe, levels);
               }) == "step 20  held-out loss 7.0000, Brier-1 0.132 (unigram 0.069, bigram 0.160), BrierLM 0.90 (bigram "
                     "0.80); autoregressive after 1:40: Brier-1 0.200 (this has 66 %), BrierLM 2.00 (45 %)\n");
    BOOST_TEST(has(standard_error_of([&] { log_final(report, e, 20, 150, levels); }),
                   "\nautoregressive after 1:40: Brier-1 0.200 (this has 66 %), BrierLM 2.00 (45 %)\n"));
    auto const log = t.folder.content("run/metrics.jsonl");
    BOOST_TEST(has(log, "\"unigram_brier_lm\":0,"), log);
    BOOST_TEST(
        has(log, "\"baseline_seconds\":null,\"baseline_brier_1\":null,\"baseline_brier_lm\":null}\n{\"step\":20,"),
        log);
    BOOST_TEST(log.ends_with("\"baseline_seconds\":100,\"baseline_brier_1\":0.2,\"baseline_brier_lm\":2}\n"), log);
}

BOOST_AUTO_TEST_CASE(a_resumed_run_keeps_its_warm_up) {
    trial t;
    t.settings.push_back({"warmup", "3"});
    auto const warmup = [&] {
        training_run const run(t.options);
        t.recipe.warmup = 20;
        run.keep_as_begun(t.recipe);
        return t.recipe.warmup;
    };
    BOOST_TEST(warmup() == 20);  // not begun
    BOOST_TEST(t.steps_to(5, 1));
    BOOST_TEST(warmup() == 3);
    t.options.warmup = 20;
    BOOST_TEST(warmup() == 20);  // given by --warmup
    t.options.warmup.reset();
    t.options.fresh = true;
    BOOST_TEST(warmup() == 20);
}

// The settings depend on the weights, not on their file layout.
BOOST_AUTO_TEST_CASE(settings_hold_the_weights_of_every_layout) {
    trial t;
    auto const single = checkpoint("base", "autoencoder"), sharded = t.folder.path("sharded");
    convert_model(single, sharded, {.as = {}, .shard_bytes = 2000});
    BOOST_TEST(!std::filesystem::exists(sharded + "/model.safetensors"));
    auto const ours = description_of("tiny", t.options, 1, 2, packing::unbroken, t.words);
    auto const of = [&](std::string const& directory) {
        t.options.init = directory;
        auto const model = read_model_description(directory);
        return settings_of("calm", ours, t.options, t.text, &model, {});
    };
    auto const all = of(single);
    BOOST_TEST(differences(all, of(sharded)).empty());
    BOOST_TEST((all.back().option == "init" && all.back().value == all[all.size() - 2].value));
    convert_model(single, t.folder.path("rounded"), {.as = stored_type::bf16});
    BOOST_TEST(differences(all, of(t.folder.path("rounded"))).size() == 2U);
}
