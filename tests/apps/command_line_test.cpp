#include <boost/test/unit_test.hpp>

#include <set>
#include <string>
#include <vector>

#include "calm/io/detail/config_json.hpp"
#include "calm/text/markov.hpp"
#include "command/command.hpp"
#include "command/command_line.hpp"
#include "command/completion.hpp"
#include "registry.hpp"
#include "run/training_run.hpp"
#include "support/config_file.hpp"
#include "support/temporary_folder.hpp"
#include "text/generation.hpp"
#include "text/text_data.hpp"

#include "support/sentences.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

std::vector<char const*> pointers(std::vector<std::string> const& words) {
    std::vector<char const*> p{"program"};
    for (auto const& word : words) p.push_back(word.c_str());
    return p;
}

template <class Read> auto read(Read&& reader, std::vector<std::string> const& words) {
    auto const p = pointers(words);
    return reader(static_cast<int>(p.size()), p.data());
}

// The message of the single error for an impossible command line.
template <class Read> std::string refusal(Read&& reader, std::vector<std::string> const& words) {
    try {
        read(reader, words);
    } catch (error const& e) {
        BOOST_TEST(static_cast<int>(e.code()) == 2);
        return e.what();
    }
    BOOST_ERROR("expected an error");
    return "";
}

std::string known_name() {
    return compiled_configurations().front().name;
}

}  // namespace

BOOST_AUTO_TEST_CASE(options_reach_their_places) {
    temporary_folder const folder;
    auto const tokenizer_file = folder.with("tokenizer.model", "x");
    auto const command = read(read_train, {"autoencoder",      "--config", known_name(),  "--tokenizer",
                                           tokenizer_file,     "--data",   "stories:100", "--out",
                                           folder.path("out"), "--steps",  "7",           "--minutes=0.5",
                                           "--learning-rate",  "1e-3",     "--schedule",  "cosine",
                                           "--warmup",         "2",        "--seed",      "18446744073709551615",
                                           "--random-patches", "0.15",     "--dropout",   "0",
                                           "--kl-clamp",       "0.25"});
    BOOST_REQUIRE(command.has_value());
    auto const& o = std::get<train_autoencoder_command>(*command);
    BOOST_TEST(o.configuration == known_name());
    BOOST_TEST(o.data.sources == std::vector<std::string>{"stories:100"});
    BOOST_TEST(*o.steps == 7);
    BOOST_TEST(*o.minutes == 0.5);
    BOOST_TEST(*o.learning_rate == 1e-3);
    BOOST_CHECK(o.schedule == learning_rate_schedule::cosine);
    BOOST_TEST(o.seed == 18446744073709551615U);
    BOOST_TEST(*o.of_autoencoder.random_patches == 0.15);
    BOOST_TEST(*o.of_autoencoder.dropout == 0);
    BOOST_TEST(*o.of_autoencoder.kl_clamp == 0.25);
    BOOST_TEST(!o.of_autoencoder.kl_weight.has_value());
    BOOST_TEST(!o.batch.has_value());
}

// The directory of `train text` names the model in it that an option is about.
BOOST_AUTO_TEST_CASE(a_run_is_named_for_the_model_in_it) {
    temporary_folder const folder;
    auto const run = folder.path("run"), autoencoder = run + "/autoencoder", model = run + "/model";
    for (auto const& each : {autoencoder, model}) std::filesystem::create_directories(each);
    for (auto const* const file : {"run/plan.json", "run/model/metrics.jsonl"})
        static_cast<void>(folder.with(file, "x"));
    auto const with = [&](std::vector<std::string> words) {
        words.insert(words.end(), {"--config", "tiny", "--data", "stories:100", "--out", folder.path("out")});
        return *read(read_train, words);
    };
    auto const c = std::get<train_calm_command>(with({"calm", "--autoencoder", run, "--init", run, "--baseline", run}));
    BOOST_TEST(c.autoencoder == autoencoder);
    BOOST_TEST(c.init == model);
    BOOST_TEST(c.baseline == model);
    auto const file = folder.with("words", "x");
    auto const a = std::get<train_autoencoder_command>(with({"autoencoder", "--tokenizer", file, "--init", run}));
    BOOST_TEST(a.init == autoencoder);
    auto const joined = read(read_options<convert_options>, {model, "--autoencoder", run, "--out", folder.path("out")});
    BOOST_TEST(joined->autoencoder == autoencoder);
    std::filesystem::remove(autoencoder);  // as in the run of an autoregressive model
    BOOST_TEST(
        has(refusal(read_options<convert_options>, {model, "--autoencoder", run, "--out", folder.path("out")}),
            "--autoencoder: " + run + " has no autoencoder yet: its training was stopped before that, or it is "));
    std::filesystem::remove_all(model);
    for (std::string const option : {"--model", "--run"})
        BOOST_TEST(has(option == "--run" ? refusal(read_options<plot_options>, {run})
                                         : refusal(read_options<generate_options>, {run}),
                       option + ": " + run + " has no model yet: its training was stopped before that; repeat its "));
    BOOST_TEST(has(refusal(read_options<plot_options>, {"nowhere"}), "--run: there is no nowhere"));
    BOOST_TEST(has(refusal(read_options<generate_options>, {"stoires"}), "there is no stoires; did you mean stories?"));
    BOOST_TEST(has(refusal(read_options<generate_options>, {"Mia was"}),
                   "there is no Mia was; give a prompt as --prompt TEXT"));
}

BOOST_AUTO_TEST_CASE(weights_are_rounded_at_random_in_bf16) {
    temporary_folder const folder;
    auto const with = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"text", "--data", "stories:100", "--out", folder.path("out"), "--minutes", "1"});
        return words;
    };
    auto const rounding = [&](std::vector<std::string> const& words) {
        auto const o = std::get<text_options>(*read(read_train, with(words)));
        auto const recipe = recipe_for(configuration_named("tiny").defaults.calm, o);
        BOOST_CHECK(recipe.rounding == o.rounding);
        return recipe.rounding;
    };
    BOOST_CHECK(rounding({"--dtype", "bf16"}) == weight_rounding::nearest);
    BOOST_CHECK(rounding({"--dtype", "bf16", "--rounding", "stochastic"}) == weight_rounding::stochastic);
    BOOST_CHECK(rounding({"--dtype", "bf16", "--rounding", "nearest"}) == weight_rounding::nearest);
    BOOST_CHECK(rounding({"--rounding", "nearest"}) == weight_rounding::nearest);
    BOOST_TEST(
        has(refusal(read_train, with({"--rounding", "stochastic"})), "--rounding stochastic: expected --dtype bf16"));
    BOOST_TEST(has(refusal(read_train, with({"--dtype", "bf16", "--rounding", "random"})),
                   "expected one of nearest and stochastic"));
}

BOOST_AUTO_TEST_CASE(a_device_has_a_name_and_a_gpu_a_number) {
    auto const text_of = [](std::string const& device) { return device_choice::parse(device).text(); };
    for (auto const* const whole : {"cpu", "emulated", "cuda", "cuda:0", "cuda:3", "auto"})
        BOOST_TEST(text_of(whole) == whole);
    BOOST_TEST(device_choice::parse("cuda:3").number_here() == 3);
    BOOST_TEST(device_choice::parse("cuda").number_here() == 0);  // in one process
    for (auto const* const wrong : {"", "gpu", "cuda:", "cuda:-1", "cuda:1024", "cuda:1x", "cpu:1", "auto:0"})
        BOOST_CHECK_EXCEPTION(text_of(wrong), error, [&](error const& e) {
            return e.code() == errc::usage && std::string(e.what()).starts_with("--device: expected") &&
                   has(e.what(), std::string("found '") + wrong + "'");
        });

    // emulated is for tests: help and completion omit it.
    for (auto const& whole : every_command())
        for (auto const& option : whole.options)
            if (option.name == "--device") {
                BOOST_TEST(!has(option.help, "emulated"), whole.word);
                BOOST_TEST((option.choices == std::vector<std::string>{"cpu", "cuda", "auto"}), whole.word);
            }

    temporary_folder const folder;
    auto const command = read(read_train, {"text", "--data", "stories:100", "--out", folder.path("out"), "--minutes",
                                           "1", "--device", "cuda:2"});
    BOOST_REQUIRE(command.has_value());
    auto const& o = std::get<text_options>(*command);
    BOOST_TEST(o.device.text() == "cuda:2");
    BOOST_TEST(has(o.record.options, "device = \"cuda:2\""));
}

BOOST_AUTO_TEST_CASE(a_text_needs_no_choice) {
    temporary_folder const folder;
    auto const with = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"text", "--data", "stories:100", "--out", folder.path("out")});
        return words;
    };
    auto const plain = std::get<text_options>(*read(read_train, with({"--minutes", "5"})));
    BOOST_TEST(record_of(plain.choices) == (recipe_record{{"minutes", "5"}}));
    auto const some = std::get<text_options>(
        *read(read_train, with({"--steps", "7", "--autoencoder-steps", "3", "--schedule", "constant", "--head-beta",
                                "1.5", "--config", "tiny", "--seed", "9", "--fresh", "--sample-prompt", "Mia"})));
    BOOST_TEST(record_of(some.choices) == (recipe_record{{"config", "tiny"},
                                                         {"autoencoder-steps", "3"},
                                                         {"steps", "7"},
                                                         {"schedule", "constant"},
                                                         {"head-beta", "1.5"}}));
    BOOST_TEST(some.seed == 9U);
    BOOST_TEST(some.fresh);
    BOOST_TEST(some.sample_prompt == "Mia");
    BOOST_TEST(!some.steps.has_value());  // a stage has its own steps
    BOOST_TEST(some.record.words.at(1) == "text");

    auto const all =
        refusal(read_train, with({"--vocabulary", "258", "--config", "tiny-ar", "--autoencoder-learning-rat", "1",
                                  "--kl-weight", "1", "--accumulation", "2", "--schedule", "linear"}));
    for (auto const* const part : {"--vocabulary: expected a whole number from 259",
                                   "--kl-weight: tiny-ar, an autoregressive model, has no autoencoder",
                                   "did you mean --autoencoder-learning-rate?", "no option --accumulation",
                                   "expected one of constant and cosine"})
        BOOST_TEST(has(all, part), part << " is missing in " << all);
    BOOST_TEST(has(refusal(read_train, with({"--minutes", "1", "--config", "tiny", "--head-colour", "1"})),
                   "no option --head-colour"));
    BOOST_TEST(has(refusal(read_train, {"txt"}), "did you mean text?"));
    auto const file = folder.with("o.toml", "minutes = 3\n[text]\nkl-weight = 0.5\n[calm]\nhead-samples = 4\n");
    auto const read_from = std::get<text_options>(*read(read_train, with({"--config-file", file})));
    BOOST_TEST(record_of(read_from.choices) == (recipe_record{{"minutes", "3"}, {"kl-weight", "0.5"}}));
}

// The cosine runs over the steps if they are known, else over the time; without either the default steps apply.
BOOST_AUTO_TEST_CASE(a_cosine_needs_no_steps) {
    temporary_folder const folder;
    auto const recipe = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"calm", "--config", "tiny", "--autoencoder", folder.path(""), "--data",
                                     "stories:100", "--out", folder.path("out"), "--schedule", "cosine"});
        auto const command = read(read_train, words);
        return recipe_for(configuration_named("tiny").defaults.calm, std::get<train_calm_command>(*command));
    };
    BOOST_TEST(recipe({"--minutes", "2"}).steps == 0);
    BOOST_TEST(recipe({"--minutes", "2"}).seconds == 120);
    BOOST_TEST(recipe({}).steps == configuration_named("tiny").defaults.calm.steps);
    BOOST_TEST(has(refusal(
                       [&](auto...) {
                           return recipe({"--steps", "5", "--warmup", "5"});
                       },
                       {}),
                   "expected more --steps than --warmup"));
}

BOOST_AUTO_TEST_CASE(the_numbers_of_a_head_are_options_of_training) {
    temporary_folder const folder;
    auto const model = folder.path("");
    auto const with = [&](std::string const& option, std::string const& value) {
        return std::vector<std::string>{"calm",        "--config", "tiny",           "--autoencoder", model, "--data",
                                        "stories:100", "--out",    folder.path("m"), option,          value};
    };
    auto const trained = [&](std::string const& option, std::string const& value) {
        auto const command = read(read_train, with(option, value));
        return static_cast<energy_objective>(
            recipe_for(configuration_named("tiny").defaults.calm, std::get<train_calm_command>(*command)).objective);
    };
    BOOST_TEST(trained("--head-samples", "3").samples == 3);
    BOOST_TEST(trained("--head-samples", "3").targets == 32);  // tiny's default
    BOOST_TEST(trained("--head-targets", "10000").targets == 10000);
    BOOST_TEST(trained("--head-beta", "1.75").beta == 1.75);
    BOOST_TEST(has(refusal(read_train, with("--head-beta", "2")),
                   "--head-beta: expected a number above 0 and below 2, found '2'"));
    BOOST_TEST(has(refusal(read_train, with("--head-targets", "0")), "a whole number from 1 to 10000"));
}

// A run limited by steps warms up for at most a tenth of them; with a limit in minutes only, the configuration's
// warm-up applies.
BOOST_AUTO_TEST_CASE(a_short_run_warms_up_for_a_tenth_of_it) {
    auto const all = [](auto recipe) {
        recipe.steps = 2000;
        recipe.warmup = 200;
        auto const warmup = [&](std::optional<index_t> steps, std::optional<double> minutes = {},
                                std::optional<index_t> given = {}) {
            train_options o;
            o.steps = steps;
            o.minutes = minutes;
            o.warmup = given;
            return recipe_for(recipe, o).warmup;
        };
        BOOST_TEST(warmup({}) == 200);
        BOOST_TEST(warmup(2000) == 200);
        BOOST_TEST(warmup(9000) == 200);
        BOOST_TEST(warmup(1999) == 199);
        BOOST_TEST(warmup(260) == 26);
        BOOST_TEST(warmup(9) == 1);
        BOOST_TEST(warmup(1) == 1);
        BOOST_TEST(warmup(260, 4) == 26);
        BOOST_TEST(warmup({}, 4) == 200);
        BOOST_TEST(warmup(260, {}, 200) == 200);
        BOOST_TEST(warmup(260, {}, 0) == 0);
        recipe.warmup = 0;
        BOOST_TEST(warmup(260) == 0);
        recipe.steps = 50;
        recipe.warmup = 30;
        BOOST_TEST(warmup({}) == 5);
    };
    all(autoencoder_recipe());
    all(calm_recipe<any_objective>());
    all(autoregressive_recipe());
}

BOOST_AUTO_TEST_CASE(lists_of_texts_and_prompts) {
    temporary_folder const folder;
    auto const text = folder.with("a.txt", "some text");
    auto const command = read(read_train, {"tokenizer", "--data", text, "stories:50", "--vocabulary", "300",
                                           "--holdout", "6:5", "--out", folder.path("t")});
    auto const& o = std::get<tokenizer_options>(*command);
    BOOST_TEST(o.data.sources == (std::vector<std::string>{text, "stories:50"}));
    BOOST_TEST(o.data.holdout == "6:5");
    BOOST_TEST(o.vocabulary == 300);

    auto const model = folder.path("");
    auto const g =
        read(read_options<generate_options>, {"--model", model, "--prompt=--a prompt--", "--temperature", "0.25"});
    BOOST_TEST(g->prompts == std::vector<std::string>{"--a prompt--"});
    BOOST_TEST(g->sampler.empty());  // the default for the model: adaptive for a CALM
    BOOST_TEST((sampler_of(g->sampler, g->temperature, g->pool).rule == sampling_rule::adaptive));
    BOOST_TEST(g->temperature == "0.25");
    BOOST_TEST(g->pool == 200);
    auto const prompts = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"--model", model});
        return prompt_reader(*read(read_options<generate_options>, words)).next(100);
    };
    BOOST_TEST(prompts({}) == std::vector<std::string>{""});
    BOOST_TEST(prompts({"--prompt", ""}) == std::vector<std::string>{""});
    BOOST_TEST(prompts({"--prompt", "-3 degrees"}) == std::vector<std::string>{"-3 degrees"});
    auto const lines = folder.with("prompts.txt", "one\r\n\nthree words here");
    BOOST_TEST(prompts({"--prompt", "a", "--prompts", lines, "--prompt=b"}) ==
               (std::vector<std::string>{"a", "b", "one", "three words here"}));
    auto const latin1 = folder.with("latin1.txt", "\u00e9\n\nab\xe9 c\n");
    try {
        (void)prompts({"--prompts", latin1});
        BOOST_ERROR("expected an error");
    } catch (error const& wrong) {
        BOOST_TEST((wrong.code() == errc::data));
        BOOST_TEST(has(wrong.what(), "latin1.txt, line 3, byte 2: invalid UTF-8"));
    }
}

namespace {

// A folder with the config.json of a CALM with this head.
std::string calm_with(temporary_folder const& folder, std::string const& head) {
    auto description = model_description::of(model_kind::calm, head);
    description.vocab_size = 8;
    std::filesystem::create_directory(folder.path(head));
    calm::test::write_config_json(folder.path(head + "/config.json"), description);
    return folder.path(head);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_sampler_takes_its_temperatures) {
    temporary_folder const folder;
    auto const model = calm_with(folder, "energy");
    auto const rule = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"--model", model});
        return std::get<sampler>(generation_settings_of(*read(read_options<generate_options>, words), false).sampler);
    };
    BOOST_CHECK(rule({}).rule == sampling_rule::adaptive);
    BOOST_TEST(rule({}).n == 2);
    BOOST_TEST(rule({}).max_draws == 200);
    BOOST_CHECK(rule({"--sampler", "batch", "--pool", "50"}).rule == sampling_rule::batch);
    BOOST_TEST(rule({"--sampler", "batch", "--pool", "50"}).max_draws == 50);
    BOOST_TEST(has(refusal(read_options<generate_options>, {"--model", model, "--samples", "50"}),
                   "there is no option --samples"));
    BOOST_CHECK(rule({"--sampler", "exact", "--temperature", "0.4"}).rule == sampling_rule::exact);
    BOOST_TEST(rule({"--sampler", "exact", "--temperature", "0.4"}).max_draws == 100'000);
    BOOST_TEST(rule({"--sampler", "noise", "--temperature", "0"}).noise_scale == 0.0);
    auto const refused = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"--model", model});
        return refusal(read_options<generate_options>, words);
    };
    BOOST_TEST(has(refused({"--temperature", "0.4"}), "take 1/2 (0.5) or 1/3 (0.333333), or another sampler: noise"));
    BOOST_TEST(has(refused({"--sampler", "batch", "--temperature", "0.7"}), "1/1 (1) or 1/2 (0.5)"));
    BOOST_TEST(has(refused({"--sampler", "exact", "--temperature", "1.5"}), "at most 1"));
    BOOST_TEST(has(refused({"--prompts", folder.path("none.txt")}), "--prompts: there is no"));
}

// Loading the model reports why it is refused; until then no option is checked against it.
BOOST_AUTO_TEST_CASE(options_of_a_model_that_is_refused_are_not_judged) {
    temporary_folder const folder;
    auto const model = calm_with(folder, "energy");
    auto const is_judged = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"--model", model});
        try {
            read(read_options<generate_options>, words);
            return false;
        } catch (error const&) {
            return true;
        }
    };
    std::vector<std::vector<std::string>> const options{
        {"--temperature", "0"}, {"--temperature", "0.8"}, {"--top-k", "5"}, {"--top-p", "0.5"}, {"--head-steps", "4"}};
    for (auto const& words : options) BOOST_TEST(is_judged(words), words[0] << " " << words[1]);
    static_cast<void>(folder.with("energy/config.json", R"({"architectures":["MistralForCausalLM"]})"));
    for (auto const& words : options) BOOST_TEST(!is_judged(words), words[0] << " " << words[1]);
    std::filesystem::remove(folder.path("energy/config.json"));
    for (auto const& words : options) BOOST_TEST(!is_judged(words), words[0] << " " << words[1]);
}

BOOST_AUTO_TEST_CASE(heads_sample_with_the_given_options) {
    temporary_folder const folder;
    auto const flow = calm_with(folder, "flow"), diffusion = calm_with(folder, "diffusion"),
               energy = calm_with(folder, "energy");
    auto const g = read(read_options<generate_options>, {"--model", flow, "--head-steps", "4", "--head-order", "1"});
    BOOST_REQUIRE(g.has_value());
    BOOST_TEST(g->head.at("steps").value() == 4);
    BOOST_TEST(g->head.at("order").value() == 1);
    auto const e = read(read_options<evaluate_options>,
                        {"--model", energy, "--model", flow, "--data", "stories:9", "--head-steps", "4"});
    BOOST_REQUIRE(e.has_value());
    BOOST_TEST(e->head.at("steps").value() == 4);
    BOOST_TEST(!e->head.at("order").has_value());
    auto const published =
        read(read_options<generate_options>, {"--model", diffusion, "--head-steps", "4", "--head-start", "999"});
    BOOST_REQUIRE(published.has_value());
    BOOST_TEST(published->head.at("start").value() == 999);
    for (auto const& words : {std::vector<std::string>{"--model", energy, "--head-steps", "4"},
                              {"--model", diffusion, "--head-order", "1"},
                              {"--model", flow, "--head-start", "999"}})
        BOOST_TEST(
            has(refusal(read_options<generate_options>, words), words[2] + ": the model's head has no such option"));
    BOOST_TEST(has(refusal(read_options<generate_options>, {"--model", flow, "--head-order", "3"}),
                   "a whole number from 1 to 2"));
}

BOOST_AUTO_TEST_CASE(a_line_summarises_the_generated_text) {
    std::vector<generation_result> const texts{
        {.tokens = std::vector<token_id>(30), .stopped_at_eos = true, .patches = 8, .draws = 20, .capped = 0},
        {.tokens = std::vector<token_id>(10), .patches = 2, .draws = 5, .capped = 1}};
    auto const by_patches = generation_unit::patch, by_tokens = generation_unit::token;
    auto const counted = [](std::span<generation_result const> made) {
        generation_statistics all;
        for (auto const& text : made) all.add(text);
        return all;
    };
    BOOST_TEST(statistics(counted(texts), 0.5, by_patches) ==
               "2 texts, 40 tokens in 0.50 s (80 tokens/s), 10 patches, 2.50 draws and 50.00 ms per patch, 1 capped; 1 "
               "ended with EOS");
    BOOST_TEST(statistics(counted(std::span(texts).first(1)), 0.5, by_patches) ==
               "30 tokens in 0.50 s (60 tokens/s), 8 patches, 2.50 draws and 62.50 ms per patch; ended with EOS");
    BOOST_TEST(has(statistics({}, 1, by_patches), "0 patches"));
    generation_result const written_by_tokens{.tokens = std::vector<token_id>(10), .patches = 10, .draws = 10};
    BOOST_TEST(statistics(counted(std::span(&written_by_tokens, 1)), 0.5, by_tokens) ==
               "10 tokens in 0.50 s (20 tokens/s), 1.00 draws and 50.00 ms per token; stopped at --max-tokens");
}

BOOST_AUTO_TEST_CASE(all_problems_are_reported_together) {
    temporary_folder const folder;
    auto const there = folder.with("there", "x");
    auto const all = refusal(read_train, {"calm",
                                          "--autoencoder",
                                          folder.path("absent"),
                                          "--data",
                                          "stories:0",
                                          folder.path("no.txt"),
                                          "--out",
                                          there,
                                          "--steps",
                                          "three",
                                          "--minutes",
                                          "--bacth",
                                          "4",
                                          "--head-beta",
                                          "3",
                                          "--head-samples",
                                          "1",
                                          "--learning-rate",
                                          "1",
                                          "--learning-rate",
                                          "2",
                                          "--holdout",
                                          "6",
                                          "--schedule",
                                          "cosin",
                                          "--config",
                                          "tinny"});
    for (auto const* const part :
         {"absent", "stories:0", "no.txt", "already exists", "'three'", "--minutes needs a value", "no option --bacth",
          "mean --batch?", "--head-beta: expected a number above 0 and below 2,",
          "--head-samples: expected a whole number from 2 to 4096", "--learning-rate is given 2 times", "holdout \"6\"",
          "mean cosine?", "'tinny' is not compiled", "-DCALM_CONFIGS="})
        BOOST_TEST(has(all, part), part << " is missing in " << all);
    BOOST_TEST(has(refusal(read_train, {"tokenizer"}), "3 problems"));
}

// With an unset variable, --out $UNSET becomes --out "", which careless code takes for the root or the current folder.
BOOST_AUTO_TEST_CASE(an_empty_text_is_refused_by_every_option_but_a_prompt) {
    std::set<std::string> allowed;
    for (auto const& whole : every_command())
        for (auto const& option : whole.options) {
            using count = declared_option::value_count;
            if (option.may_be_empty) allowed.insert(option.name);
            if (option.may_be_empty || option.count == count::none || option.name == "--completion") continue;
            std::vector<std::string> const words{option.name, ""};
            auto const refused = [&](auto const& reader, std::vector<std::string> all) {
                BOOST_TEST(has(refusal(reader, all), option.name + ": expected " + option.type + ", found an empty"),
                           whole.word << ' ' << option.name);
            };
            if (whole.word == "evaluate")
                refused(read_options<evaluate_options>, words);
            else if (whole.word == "generate")
                refused(read_options<generate_options>, words);
            else if (whole.word == "serve")
                refused(read_options<serve_options>, words);
            else if (whole.word == "sweep")
                refused(read_options<sweep_options>, words);
            else if (whole.word == "convert")
                refused(read_options<convert_options>, words);
            else if (whole.word == "inspect")
                refused(read_options<inspect_options>, words);
            else if (whole.word == "plot")
                refused(read_options<plot_options>, words);
            else if (whole.word == "tokenize")
                refused(read_options<tokenize_options>, words);
            else
                refused(read_train, {whole.word, option.name, ""});
        }
    BOOST_TEST(allowed == (std::set<std::string>{"--prompt", "--sample-prompt", "--text"}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(unknown_commands_and_values) {
    BOOST_TEST(has(refusal(read_train, {"autoencodr"}), "did you mean autoencoder?"));
    BOOST_TEST(has(refusal(read_train, {}), "text, tokenizer, autoencoder, calm and ar"));
    BOOST_TEST(has(refusal(read_options<evaluate_options>,
                           {"--model", "nowhere", "--data", "stories:9", "stray.txt", "--samples", "1"}),
                   "stray.txt"));
    temporary_folder const folder;
    std::vector<std::string> const start{"--model", calm_with(folder, "energy")};
    auto const refused = [&](std::vector<std::string> words) {
        words.insert(words.begin(), start.begin(), start.end());
        return refusal(read_options<generate_options>, words);
    };
    BOOST_TEST(has(refused({"--sampler", "exakt"}), "did you mean exact?"));
    BOOST_TEST(has(refused({"--temperature", "0.4"}), "1/2"));
    BOOST_TEST(has(refused({"--temperature", "warm"}), "warm"));
    BOOST_TEST(has(refused({"--prompt", "a", "b"}), "quotes"));
}

BOOST_AUTO_TEST_CASE(a_stray_word_is_the_only_problem_reported) {
    temporary_folder const folder;
    auto const model = folder.path("");
    auto const prompt = refusal(read_options<generate_options>, {"--model", model, "Once upon"});
    BOOST_TEST(prompt.starts_with("expected an option, found 'Once upon' after --model " + model +
                                  "; give a prompt as --prompt TEXT"),
               prompt);
    BOOST_TEST(!has(prompt, "problems"));
    // The first word is the model.
    BOOST_TEST(has(refusal(read_options<generate_options>, {model, "Once upon"}),
                   "found 'Once upon' after --model " + model + "; give a prompt"));
    auto const stray =
        refusal(read_options<evaluate_options>, {"--model", model, "a.txt", "b.txt", "--data", "stories:9"});
    BOOST_TEST(stray.starts_with("expected an option, found 'a.txt b.txt' after --model " + model), stray);
    BOOST_TEST(!has(stray, "problems"));
    BOOST_TEST(!has(stray, "--prompt"));
}

BOOST_AUTO_TEST_CASE(only_near_names_are_suggested) {
    auto const threads = refusal(read_train, {"tokenizer", "--threads", "2"});
    BOOST_TEST(has(threads, "there is no option --threads\n"));
    BOOST_TEST(has(refusal(read_train, {"tokenizer", "--vocabluary", "300"}), "did you mean --vocabulary?"));
    BOOST_TEST(!has(refusal(read_train, {"words"}), "did you mean"));
}

BOOST_AUTO_TEST_CASE(one_file_of_options_serves_several_programs) {
    temporary_folder const folder;
    auto const file = folder.with("calm.toml", "data = [\"stories:100\"]\nholdout = \"6:5\"\nthreads = 1\nmodel = \"" +
                                                   folder.path("") + "\"\n[tokenizer]\nvocabulary = 300\nout = \"" +
                                                   folder.path("words") + "\"\n");
    auto const words = read(read_train, {"tokenizer", "--config-file", file});
    BOOST_TEST(std::get<tokenizer_options>(*words).data.holdout == "6:5");
    BOOST_TEST(read(read_options<generate_options>, {"--config-file", file})->threads == 1);
    BOOST_TEST(read(read_options<evaluate_options>, {"--config-file", file})->data.sources ==
               std::vector<std::string>{"stories:100"});
    BOOST_TEST(read(read_options<inspect_options>, {"--config-file", file})->model == folder.path(""));
    // Options that a missing file might have set are not reported.
    auto const absent = refusal(read_options<sweep_options>, {"--config-file", folder.path("none.toml")});
    BOOST_TEST(absent.starts_with(folder.path("none.toml") + ": cannot be opened: No such file"), absent);
}

BOOST_AUTO_TEST_CASE(help_leaves_nothing_to_do) {
    BOOST_TEST(!read(read_train, {"--help"}).has_value());
    BOOST_TEST(!read(read_train, {"calm", "--help"}).has_value());
    BOOST_TEST(!read(read_train, {"--help-all"}).has_value());
    BOOST_TEST(!read(read_train, {"calm", "--help-all"}).has_value());
    BOOST_TEST(!read(read_train, {"--version"}).has_value());
    BOOST_TEST(!read(read_train, {"calm", "--version"}).has_value());
    BOOST_TEST(!read(read_options<convert_options>, {"--version"}).has_value());
    BOOST_TEST(!read(read_options<evaluate_options>, {"-h"}).has_value());
    BOOST_TEST(!read(read_options<generate_options>, {"--model", "x", "--help"}).has_value());
}

BOOST_AUTO_TEST_CASE(symbols_need_no_tokenizer_file) {
    temporary_folder const folder;
    auto const autoencoder = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"autoencoder", "--config", known_name(), "--out", folder.path("out")});
        return words;
    };
    auto const command = read(read_train, autoencoder({"--tokenizer", "markov", "--data", "markov:1000"}));
    BOOST_TEST(std::get<train_autoencoder_command>(*command).tokenizer == markov_vocabulary);
    auto const file = folder.with("tokenizer.model", "x");
    BOOST_TEST(has(refusal(read_train, autoencoder({"--tokenizer", file, "--data", "markov:1000"})),
                   "give --tokenizer markov"));
    BOOST_TEST(
        has(refusal(read_train, autoencoder({"--tokenizer", "markov", "--data", "markov:1000", "--mode", "published"})),
            "--mode: markov:N"));
    BOOST_TEST(has(refusal(read_train, autoencoder({"--tokenizer", "markov", "--data", "markov:0"})), "markov:N"));
}

BOOST_AUTO_TEST_CASE(an_evaluation_may_be_a_subset_in_another_mode) {
    temporary_folder const folder;
    auto const evaluation = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"--model", folder.path(""), "--data", "stories:100"});
        return words;
    };
    auto const plain = read(read_options<evaluate_options>, evaluation({}));
    BOOST_TEST(plain->positions == 0);
    BOOST_TEST(plain->data.mode == "");
    auto const some = read(read_options<evaluate_options>, evaluation({"--positions", "20000", "--mode", "published"}));
    BOOST_TEST(some->positions == 20000);
    BOOST_TEST(some->data.mode == "published");
    BOOST_TEST(has(refusal(read_options<evaluate_options>, evaluation({"--positions", "0"})), "--positions"));
    BOOST_TEST(
        has(refusal(read_options<evaluate_options>, evaluation({"--mode", "publisht"})), "did you mean published?"));
}

BOOST_AUTO_TEST_CASE(the_mode_is_the_given_one_or_the_model_s) {
    tokenizer const words;
    stored_model trained;
    trained.description.calm = calm_description{};
    trained.description.calm->data = data_description{};
    trained.description.calm->data->mode = "published";
    using enum packing;
    BOOST_CHECK(packing_for(packed_for::language_model, {}, words) == padded);
    BOOST_CHECK(packing_for(packed_for::language_model, {}, words, &trained) == published_language_model);
    BOOST_CHECK(packing_for(packed_for::autoencoder, {}, words, &trained) == published_autoencoder);
    data_options asked;
    asked.mode = "padded";
    BOOST_CHECK(packing_for(packed_for::language_model, asked, words, &trained) == padded);
    BOOST_CHECK(packing_for(packed_for::language_model, {}, tokenizer::of_symbols(markov_alphabet), &trained) ==
                unbroken);
    // For known sources the optimum is reported next to the measured scores.
    evaluation e;
    data_options const symbols{.sources = {"markov:10"}, .data_seed = {}, .holdout = {}, .mode = {}};
    add_optimum(e, symbols, 3);
    BOOST_TEST(!e.optimal_brier);
    e.brier = brier_scores{};
    add_optimum(e, asked, 3);
    BOOST_TEST(!e.optimal_brier);
    add_optimum(e, symbols, 3);
    auto const optimum = markov_chain(3).optimal_brier();
    auto const close = boost::test_tools::tolerance(1e-12);  // other source files may round differently
    for (std::size_t n = 0; n < optimum.size(); ++n) BOOST_TEST((*e.optimal_brier)[n] == optimum[n], close);
    BOOST_TEST(*e.optimal_brier_lm == brier_lm(optimum), close);
}
