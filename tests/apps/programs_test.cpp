// The programs as users run them, from CALM_PROGRAMS_DIR: from stories to generated text, with a model of a few steps.

#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>
#include <simdjson.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/programs.hpp"
#include "support/sentences.hpp"
#include "support/torch_file.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

// The cells of a one-row table, by column name.
std::map<std::string, std::string> cells_of(std::string const& table) {
    std::map<std::string, std::string> cells;
    std::istringstream lines(table);
    std::string line;
    BOOST_REQUIRE(std::getline(lines, line));
    std::istringstream names(line);
    BOOST_REQUIRE(std::getline(lines, line));
    std::istringstream row(line);
    for (std::string name, cell; std::getline(names, name, '\t') && std::getline(row, cell, '\t');) cells[name] = cell;
    return cells;
}

// A folder with a tokenizer, an autoencoder and a CALM, made once.
class workshop {
public:
    workshop() {
        tokenizer_ = program("train tokenizer --vocabulary 300 --data stories:4000 --out tokenizer.model");
        autoencoder_ = program("train autoencoder " + autoencoder_arguments + " --out ae");
        calm_ = program("train calm " + calm_arguments + " --out calm");
    }

    // Runs a program in the folder, with `before` in front of it; the shell splits the words.
    ran program(std::string const& command, std::string const& before = "") const {
        return run_in(folder_, before + " " + command);
    }
    std::string content(std::string const& name) const { return folder_.content(name); }
    temporary_folder const& folder() const { return folder_; }

    inline static std::string const autoencoder_arguments =
        "--config tiny --tokenizer tokenizer.model --data stories:4000 --batch 256 --steps 6 "
        "--evaluate-every 3 --seed 3";
    inline static std::string const calm_arguments =
        "--config tiny --autoencoder ae --data stories:4000 --batch 2 --block 64 --steps 5 --evaluate-every 3 --seed 3";

    ran tokenizer_, autoencoder_, calm_;

private:
    temporary_folder folder_;
};

workshop const& shop() {
    static workshop const one;
    return one;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_is_trained) {
    BOOST_REQUIRE_MESSAGE(shop().tokenizer_.status == 0, shop().tokenizer_.err);
    BOOST_REQUIRE_MESSAGE(shop().autoencoder_.status == 0, shop().autoencoder_.err);
    BOOST_REQUIRE_MESSAGE(shop().calm_.status == 0, shop().calm_.err);
    for (auto const* const file :
         {"ae/config.json", "ae/model.safetensors", "ae/tokenizer.model", "ae/metrics.jsonl", "calm/config.json",
          "calm/model.safetensors", "calm/tokenizer.model", "calm/metrics.jsonl", "calm/bigram.counts",
          "calm/samples.jsonl", "calm/run.json", "calm/options.toml"})
        BOOST_TEST(!shop().content(file).empty(), file);
    for (auto const* const file : {"ae/config.json", "calm/config.json"})
        BOOST_TEST(!has(shop().content(file), "_token_id\": null"), file);
    BOOST_TEST(shop().autoencoder_.out == "");
    auto const& told = shop().autoencoder_.err;
    for (auto const* const part : {"saved activations", "step 1 ", "posterior std", "gradient", "learning rate",
                                   "tokens/s", "of peak", "MB", "left"})
        BOOST_TEST(has(told, part), part << " is missing in " << told);
    BOOST_TEST(has(shop().content("calm/metrics.jsonl"), "\"step\":5,"));
    BOOST_TEST(has(shop().content("calm/metrics.jsonl"), "\"bigram_brier_lm\":"));
    BOOST_TEST(has(shop().calm_.err, "bigram"));
    // 200 patches of 4 tokens, as CALM_HELDOUT_POSITIONS says.
    BOOST_TEST(has(shop().calm_.err, " positions of 12 blocks of 64 tokens"), shop().calm_.err);
}

BOOST_AUTO_TEST_CASE(inspect_shows_model_and_training_text) {
    for (auto const* const model : {"ae", "calm"}) {
        auto const told = shop().program(std::string("inspect ") + model);
        BOOST_REQUIRE_MESSAGE(told.status == 0, told.err);
        // The posterior's standard deviation is measured when the autoencoder is trained, and a CALM keeps it.
        for (auto const* const part : {"tiny", "stories:4000", "on its training text", "KL weight", "FLOPs per token"})
            BOOST_TEST(has(told.out, part), part << " is missing in " << told.out);
    }
}

BOOST_AUTO_TEST_CASE(the_seed_gives_the_same_bytes_at_any_number_of_threads) {
    auto const again =
        shop().program("train autoencoder " + workshop::autoencoder_arguments + " --threads 1 --out ae1");
    BOOST_REQUIRE_MESSAGE(again.status == 0, again.err);
    BOOST_TEST((shop().content("ae1/model.safetensors") == shop().content("ae/model.safetensors")));
    auto const more = shop().program("train calm " + workshop::calm_arguments + " --threads 3 --out calm3");
    BOOST_REQUIRE_MESSAGE(more.status == 0, more.err);
    BOOST_TEST((shop().content("calm3/model.safetensors") == shop().content("calm/model.safetensors")));
}

// `script` runs its command on a terminal.
BOOST_AUTO_TEST_CASE(json_is_for_programs_and_tables_for_people) {
    auto const shown = [](std::string const& more) {
        return shop()
            .program("script -qec 'evaluate --model calm --data stories:1500 --block 64 --samples 4 --positions 2" +
                     more + "' /dev/null </dev/null")
            .out;
    };
    BOOST_TEST(has(shown(""), "BrierLM"));
    BOOST_TEST(!has(shown(""), "\"brier\":"));
    BOOST_TEST(has(shown(" --json"), "\"brier\":"));
}

BOOST_AUTO_TEST_CASE(an_evaluation_is_one_json_object) {
    auto const e = shop().program("evaluate --model calm --data stories:1500 --block 64 --samples 4 --seed 1");
    BOOST_REQUIRE_MESSAGE(e.status == 0, e.err);
    simdjson::dom::parser parser;
    simdjson::dom::object object;
    BOOST_REQUIRE(!parser.parse(e.out).get(object));
    for (auto const* const key : {"brier",
                                  "brier_se",
                                  "brier_lm",
                                  "brier_lm_se",
                                  "positions",
                                  "sequences",
                                  "skipped",
                                  "block",
                                  "mode",
                                  "samples",
                                  "seed",
                                  "unigram_brier",
                                  "bigram_brier",
                                  "bigram_brier_lm",
                                  "optimal_brier",
                                  "optimal_brier_lm",
                                  "head_loss",
                                  "cross_entropy",
                                  "perplexity",
                                  "bits_per_byte",
                                  "bits_per_byte_se",
                                  "token_accuracy",
                                  "token_accuracy_posterior",
                                  "posterior_std",
                                  "temperature",
                                  "sampler",
                                  "draws_per_patch",
                                  "capped",
                                  "patches"})
        BOOST_TEST((object[key].error() == simdjson::SUCCESS), key);
    BOOST_TEST(object["block"].get_int64().value() == 64);
    BOOST_TEST(object["samples"].get_int64().value() == 4);
    BOOST_TEST(object["positions"].get_int64().value() > 100);
    BOOST_TEST(object["optimal_brier_lm"].is_null());
    BOOST_TEST(object["bigram_brier"].at(0).get_double().value() > 0.1);
    BOOST_TEST(e.err != "");
    BOOST_TEST(
        shop().program("evaluate --model calm --data stories:1500 --block 64 --samples 4 --seed 1 --threads 1").out ==
        e.out);

    auto const ae = shop().program("evaluate --model ae --data stories:1500 --block 64");
    BOOST_REQUIRE_MESSAGE(ae.status == 0, ae.err);
    BOOST_REQUIRE(!parser.parse(ae.out).get(object));
    BOOST_TEST(object["brier"].is_null());
    BOOST_TEST(object["token_accuracy"].is_double());
    BOOST_TEST(object["posterior_std"].get_double().value() > 0);
}

BOOST_AUTO_TEST_CASE(text_is_generated) {
    std::string const words = "generate --model calm --prompt 'Mia was' --pool 4 --max-tokens 9 --seed 5";
    auto const g = shop().program(words);
    BOOST_REQUIRE_MESSAGE(g.status == 0, g.err);
    BOOST_TEST(g.out.starts_with("Mia was"));
    BOOST_TEST(has(g.err, "tokens"));
    BOOST_TEST(shop().program(words + " --threads 1").out == g.out);
    BOOST_TEST(shop().program(words + " --temperature 1").status == 0);
    for (auto const* const rule : {"batch", "exact --temperature 0.9", "noise --temperature 0.3"})
        BOOST_TEST(has(shop().program(words + " --sampler " + rule).err, " draws and "), rule);

    // Several prompts at once give the texts of single prompts, numbered.
    auto const many = shop().program(words + " --prompt 'The dog' --prompt ''");
    BOOST_REQUIRE_MESSAGE(many.status == 0, many.err);
    BOOST_TEST(many.out.starts_with("=== 1\n" + g.out + "=== 2\nThe dog"));
    BOOST_TEST(has(many.out, "\n=== 3\n"));
    BOOST_TEST(has(many.err, "3 texts, "));
    BOOST_TEST(shop().program(words + " --prompt 'The dog' --prompt '' --at-once 1").out == many.out);
    std::string const rest = " --pool 4 --max-tokens 9 --seed 5";
    auto const two = shop().program(words + " --prompt 'The dog'");
    static_cast<void>(shop().folder().with("lines", "Mia was\nThe dog\n\n"));  // a blank line is not a prompt
    BOOST_TEST(shop().program("generate --model calm --prompts -" + rest + " <lines").out == two.out);

    // A pipe is read like a file; other devices may never end.
    auto const piped = shop().program("generate --model calm --prompts /dev/stdin" + rest, "cat lines |");
    BOOST_TEST(piped.out == two.out, piped.err);
    for (auto const* const option : {"--prompts", "--jsonl"}) {
        auto const endless = shop().program("generate --model calm " + std::string(option) + " /dev/zero");
        BOOST_TEST(endless.status == 10);
        BOOST_TEST(has(endless.err, "/dev/zero: expected a file, a pipe or a terminal, found another device"));
    }

    // The prompts as JSON lines, one of them bad; invalid UTF-8 is replaced, as JSON requires.
    static_cast<void>(shop().folder().with(
        "lines.jsonl", "{\"id\": 1, \"prompt\": \"Mia was\"}\n{\"id\": 2, \"prompt\": \"The dog\"}\n"
                       "{\"id\": 3}\n{\"id\": \"d\", \"prompt\": \"\"}\n"));
    auto const batch = shop().program("generate --model calm --jsonl lines.jsonl --out answers.jsonl" + rest);
    BOOST_TEST(batch.status == 4);
    BOOST_TEST(has(batch.err, "1 of 4 lines were bad"));
    auto const as_json = [](std::string const& text) {
        return nlohmann::json::parse(
                   nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
            .get<std::string>();
    };
    auto const second = many.out.find("=== 2\n") + 6, third = many.out.find("=== 3\n");
    std::vector<std::string> const whole{as_json(g.out), as_json(many.out.substr(second, third - second))};
    std::istringstream written(shop().content("answers.jsonl"));
    std::vector<nlohmann::json> answers;
    for (std::string line; std::getline(written, line);) answers.push_back(nlohmann::json::parse(line));
    BOOST_REQUIRE(answers.size() == 4u);
    for (std::size_t i : {0U, 1U}) {
        BOOST_TEST(answers[i]["id"] == i + 1);
        BOOST_TEST(answers[i]["prompt"].get<std::string>() + answers[i]["text"].get<std::string>() + "\n" == whole[i]);
    }
    BOOST_TEST(answers[2]["line"] == 3);
    BOOST_TEST(has(answers[2]["error"].get<std::string>(), "\"prompt\""));
    BOOST_TEST(answers[3]["id"] == "d");
    BOOST_TEST(answers[3].contains("text"));
    BOOST_TEST(shop().program("generate --model calm --jsonl - --prompts-file x <lines").status == 2);
}

// The model that ships with the programs, in models/stories of the sources.
BOOST_AUTO_TEST_CASE(the_story_model_is_used_where_none_is_named) {
    std::string const says = "no model is named, so this is the story model that comes with calm: ";
    auto const g = shop().program("generate --prompt 'Mia was' --max-tokens 12 --seed 1");
    BOOST_REQUIRE_MESSAGE(g.status == 0, g.err);
    BOOST_TEST(g.out.starts_with("Mia was a "), g.out);  // trained: an untrained model continues with random bytes
    BOOST_TEST(has(g.err, says), g.err);
    BOOST_TEST(has(g.err, "/models/stories\n"), g.err);
    BOOST_TEST(!has(g.err, "compiling"), g.err);
    BOOST_TEST(!has(shop().program("generate --model calm --max-tokens 4").err, says));

    auto const scored = shop().program("evaluate --data stories:2000 --positions 100 --samples 2 --seed 1");
    BOOST_REQUIRE_MESSAGE(scored.status == 0, scored.err);
    BOOST_TEST(has(scored.err, says), scored.err);
    auto const brier = nlohmann::json::parse(scored.out).at("brier_lm").get<double>();
    BOOST_TEST(brier > 60);  // docs/results/stories.md: a bigram table has 8
    auto const described = shop().program("inspect");
    BOOST_TEST(described.status == 0);
    BOOST_TEST(has(described.out, "tiny, compiled into this program"), described.out);
}

// A directory of the same name hides a model that ships with the programs.
BOOST_AUTO_TEST_CASE(shipped_models_are_named) {
    std::string const says = " is the model that comes with calm: ";
    auto const described = shop().program("inspect english");
    BOOST_REQUIRE_MESSAGE(described.status == 0, described.err);
    BOOST_TEST(has(described.err, "english" + says), described.err);
    BOOST_TEST(has(described.out, "drafted"), described.out);
    BOOST_TEST(!has(shop().program("cp -r calm stories && inspect stories; rm -r stories").err, says));
    auto const tokens = shop().program("tokenize english --text And");
    BOOST_TEST(has(tokens.err, "english" + says), tokens.err);
    BOOST_TEST(tokens.out.ends_with("\"And\"\n"), tokens.out);
    BOOST_TEST(has(shop().program("inspect englisch").err, "there is no englisch"));
    if (!has(described.out, "tiny-drafted, compiled into this program")) return;
    auto const g = shop().program("generate english --prompt 'And the LORD' --max-tokens 40 --seed 1");
    BOOST_REQUIRE_MESSAGE(g.status == 0, g.err);
    BOOST_TEST(g.out.starts_with("And the LORD "), g.out);  // trained: an untrained model continues with random bytes
    BOOST_TEST(!has(g.err, "compiling"), g.err);
}

// A stop string that the untrained model happens to generate: two characters of its text, after some others.
BOOST_AUTO_TEST_CASE(a_text_ends_before_a_stop_string) {
    std::string const words = "generate --model calm --prompt Mia --pool 4 --max-tokens 40 --seed 5";
    auto const whole = shop().program(words);
    BOOST_REQUIRE_MESSAGE(whole.status == 0, whole.err);
    auto const text = whole.out.substr(3);
    auto const is_plain = [](char c) { return c > ' ' && c < 127 && c != '\'' && c != '-'; };
    std::size_t at = text.size() / 2;
    while (at + 1 < text.size() && !(is_plain(text[at]) && is_plain(text[at + 1]))) ++at;
    BOOST_REQUIRE(at + 1 < text.size());
    auto const stop = text.substr(at, 2);
    auto const before = text.substr(0, text.find(stop));

    auto const ended = shop().program(words + " --stop never --stop '" + stop + "'");
    BOOST_TEST(ended.out == "Mia" + before + "\n", ended.err);
    BOOST_TEST(has(ended.err, "; stopped at --stop"), ended.err);
    auto const two = shop().program(words + " --prompt 'The dog' --stop '" + stop + "'");
    BOOST_TEST(two.out.starts_with("=== 1\nMia" + before + "\n=== 2\nThe dog"), two.out);
    auto const lines =
        shop().program("generate --model calm --jsonl - --pool 4 --max-tokens 40 --seed 5 --stop '" + stop + "'",
                       R"(echo '{"id": 1, "prompt": "Mia"}' |)");
    BOOST_TEST(has(lines.out, "\"stop_reason\":" + nlohmann::json(stop).dump() + "}"), lines.out);
    auto const answer = nlohmann::json::parse(lines.out);
    BOOST_TEST(answer["patches"].get<int>() < 10);
    BOOST_TEST(has(shop().program(words + " --stop $(printf 'a\\377')").err, "--stop: byte 1: invalid UTF-8"));
}

BOOST_AUTO_TEST_CASE(errors_name_a_remedy_and_lose_nothing) {
    auto const before = shop().content("calm/model.safetensors");
    auto const twice = shop().program("train calm " + workshop::calm_arguments + " --out calm");
    BOOST_TEST(twice.status == 0);
    BOOST_TEST(has(twice.err, "the run in calm is finished: 5 steps"));
    auto const no_run = shop().program("train calm " + workshop::calm_arguments + " --out .");
    BOOST_TEST(no_run.status == 2);
    BOOST_TEST(has(no_run.err, ". already exists and holds no run to resume"));
    BOOST_TEST((shop().content("calm/model.safetensors") == before));

    auto const config = shop().program(
        "train autoencoder --config tinny --tokenizer tokenizer.model --data stories:100 --steps 1 --out x");
    BOOST_TEST(config.status == 2);
    BOOST_TEST(has(config.err, "did you mean tiny?"));
    BOOST_TEST(has(config.err, "cmake --preset release -DCALM_CONFIGS="));

    auto const kind = shop().program("generate --model ae --prompt a");
    BOOST_TEST(kind.status == 3);
    BOOST_TEST(shop().program("evaluate --model . --data stories:100").status == 5);
    BOOST_TEST(
        shop()
            .program("train calm --config tiny --autoencoder ae --data stories:40 --block 4096 --steps 1 --out y")
            .status == 4);
    BOOST_TEST(!std::filesystem::exists(shop().folder().path("y")));
    // A run that is refused while planning its first step leaves no files, and existing files stay.
    std::filesystem::create_directory(shop().folder().path("empty"));
    for (auto const* const out : {"z", "empty"})
        BOOST_TEST(shop()
                       .program("train autoencoder " + workshop::autoencoder_arguments + " --batch 255 --out " + out)
                       .status == 2);
    BOOST_TEST(!std::filesystem::exists(shop().folder().path("z")));
    BOOST_TEST(std::filesystem::is_empty(shop().folder().path("empty")));
}

BOOST_AUTO_TEST_CASE(a_rate_that_is_far_too_high_ends_with_8) {
    auto const r = shop().program(
        "train autoencoder --config tiny --tokenizer tokenizer.model --data stories:4000 --batch 64 --steps 60 "
        "--learning-rate 10 --warmup 0 --out high");
    BOOST_TEST(r.status == 8);
    BOOST_TEST(has(r.err, "finite"));
    BOOST_TEST(has(r.err, "step"));
}

BOOST_AUTO_TEST_CASE(a_signal_saves_the_model) {
    // Interrupts the command after its first logged step.
    static_cast<void>(shop().folder().with(
        "interrupted.sh", calm::test::interrupted("\"$@\"", "[ -s stopped/metrics.jsonl ]", "INT") + "\n"));
    auto const r = shop().program(
        "train autoencoder --config tiny --tokenizer tokenizer.model --data stories:4000 --batch 64 --minutes 5 "
        "--out stopped",
        "sh interrupted.sh");
    BOOST_TEST(r.status == 130);
    BOOST_TEST(has(r.err, "\nstops after this step and saves the model; the same signal again (Ctrl-C) stops at once"),
               r.err);
    BOOST_TEST(!shop().content("stopped/model.safetensors").empty());
}

BOOST_AUTO_TEST_CASE(a_run_that_its_time_limit_ended_reports_it) {
    std::string const command =
        "train autoencoder --config tiny --tokenizer tokenizer.model --data stories:4000 --batch 64 --out timed";
    auto const cut = shop().program(command + " --steps 1000000 --minutes 0.005");
    BOOST_REQUIRE_MESSAGE(cut.status == 0, cut.err);
    BOOST_TEST(has(cut.err, "the time was up after"));
    BOOST_TEST(has(cut.err, "of 1,000,000 steps; the same command with a larger --minutes resumes it"));
    auto const whole = shop().program(command + " --fresh --steps 2 --minutes 5");
    BOOST_REQUIRE_MESSAGE(whole.status == 0, whole.err);
    BOOST_TEST(!has(whole.err, "the time was up"));
}

BOOST_AUTO_TEST_CASE(a_known_source_needs_no_tokenizer_and_has_an_optimum) {
    auto const ae = shop().program(
        "train autoencoder --config tiny --tokenizer markov --data markov:4000 --batch 256 --steps 3 --out mae");
    BOOST_REQUIRE_MESSAGE(ae.status == 0, ae.err);
    auto const lm = shop().program(
        "train calm --config tiny --autoencoder mae --data markov:4000 --batch 2 --block 64 --steps 2 --out mcalm");
    BOOST_REQUIRE_MESSAGE(lm.status == 0, lm.err);
    BOOST_TEST(has(lm.err, "of the optimum"));
    BOOST_TEST(has(shop().content("mcalm/config.json"), "\"unbroken\""));
    auto const e = shop().program("evaluate --model mcalm --data markov:4000 --positions 100 --samples 2");
    BOOST_REQUIRE_MESSAGE(e.status == 0, e.err);
    simdjson::dom::parser parser;
    simdjson::dom::object object;
    BOOST_REQUIRE(!parser.parse(e.out).get(object));
    BOOST_TEST(object["positions"].get_int64().value() == 100);
    BOOST_TEST(object["mode"].get_string().value() == "unbroken");
    BOOST_TEST(object["optimal_brier_lm"].get_double().value() > 5.0);
    auto const g = shop().program("generate --model mcalm --prompt ABCDabcd --pool 4 --max-tokens 6");
    BOOST_REQUIRE_MESSAGE(g.status == 0, g.err);
    BOOST_TEST(g.out.starts_with("ABCDabcd"));
    BOOST_TEST(g.out.size() == 8u + 6 + 1);
    BOOST_TEST(shop().program("generate --model mcalm --prompt ABC").status == 2);
    BOOST_TEST(shop().program("evaluate --model mcalm --data stories:1000").status == 6);
    BOOST_TEST(shop().program("train tokenizer --vocabulary 300 --data markov:1000 --out none").status == 2);
}

BOOST_AUTO_TEST_CASE(the_published_mode_is_kept_from_stage_to_stage) {
    auto const ae =
        shop().program("train autoencoder " + workshop::autoencoder_arguments + " --mode published --out pae");
    BOOST_REQUIRE_MESSAGE(ae.status == 0, ae.err);
    auto const lm = shop().program(
        "train calm --config tiny --autoencoder pae --data stories:4000 --batch 2 --block 64 --steps 2 --out pcalm");
    BOOST_REQUIRE_MESSAGE(lm.status == 0, lm.err);
    BOOST_TEST(has(shop().content("pae/config.json"), "\"published\""));
    BOOST_TEST(has(shop().content("pcalm/config.json"), "\"published\""));
    auto const e = shop().program("evaluate --model pcalm --data stories:1500 --samples 2");
    BOOST_REQUIRE_MESSAGE(e.status == 0, e.err);
    BOOST_TEST(has(e.out, "\"mode\":\"published\""));
    BOOST_TEST(has(e.out, "\"skipped\":0"));
    BOOST_TEST(has(shop().program("evaluate --model pcalm --data stories:1500 --samples 2 --mode padded").out,
                   "\"mode\":\"padded\""));
}

// A run depends on the weights, not on their file layout; rounding gives the weights of the rounded file.
BOOST_AUTO_TEST_CASE(a_run_begins_with_the_weights_of_every_layout) {
    auto const good = [](std::string const& command) {
        auto const r = shop().program(command);
        BOOST_REQUIRE_MESSAGE(r.status == 0, command << ": " << r.err);
    };
    auto const& folder = shop().folder();
    for (std::string const model : {"ae", "calm"}) {
        good("convert --model " + model + " --out " + model + ".shards --shard-size 100000");
        BOOST_TEST(!std::filesystem::exists(folder.path(model + ".shards/model.safetensors")));
        std::filesystem::create_directory(folder.path(model + ".torch"));
        for (auto const* const file : {"/config.json", "/tokenizer.model"})
            std::filesystem::copy(folder.path(model + file), folder.path(model + ".torch" + file));
        static_cast<void>(folder.with(model + ".torch/pytorch_model.bin",
                                      calm::test::as_torch_file(folder.path(model + "/model.safetensors"))));

        std::string const step = model == "ae"
                                     ? "train autoencoder --config tiny --tokenizer tokenizer.model --batch 64"
                                     : "train calm --config tiny --autoencoder ae --batch 1 --block 32";
        auto const after_a_step = [&](std::string const& from) {
            good(step + " --data stories:400 --steps 1 " + (from.empty() ? "" : "--init " + from) + " --out from." +
                 (from.empty() ? model + ".none" : from));
            return shop().content("from." + (from.empty() ? model + ".none" : from) + "/model.safetensors");
        };
        auto const want = after_a_step(model);
        BOOST_TEST((after_a_step(model + ".shards") == want), model);
        BOOST_TEST((after_a_step(model + ".torch") == want), model);
        if (model == "calm") break;
        good("convert --model ae --out ae.bf16 --dtype bf16");
        good("convert --model ae.bf16 --out ae.wide --dtype f32");
        auto const rounded = after_a_step("ae.bf16");
        BOOST_TEST((rounded == after_a_step("ae.wide")));
        BOOST_TEST((rounded != want));
        BOOST_TEST((after_a_step("") != want));
    }
}

BOOST_AUTO_TEST_CASE(configurations_are_compared) {
    auto const compared = shop().program(
        "sweep --configs tiny --tokenizer markov --data markov:4000 --autoencoder-tokens 4096 --tokens 8192 --block 64 "
        "--samples 2 --positions 100 --out swept");
    BOOST_REQUIRE_MESSAGE(compared.status == 0, compared.err);
    for (auto const* const part :
         {"tiny", "ms/patch", "ms/token", "BrierLM", "FLOPs are per token", "plotted in swept/sweep.svg"})
        BOOST_TEST(has(compared.out, part), part << " is missing in " << compared.out);
    auto const table = shop().content("swept/sweep.tsv");
    BOOST_TEST(has(table, "generation FLOPs per token"));
    auto const cells = cells_of(table);
    for (auto const* const number : {"seconds", "training seconds per token", "ms per patch", "bigram Brier-1"})
        BOOST_TEST(std::stod(cells.at(number)) > 0, number);
    BOOST_TEST(std::abs(std::stod(cells.at("ms per patch")) / std::stod(cells.at("ms per token")) - 4) < 1e-3);
    BOOST_TEST(has(table, "\ntiny\t4\t32\t"));
    BOOST_TEST(!shop().content("swept/tiny/calm/model.safetensors").empty());
    auto const plot = shop().content("swept/sweep.svg");
    for (auto const* const text : {">Sweep swept<", ">BrierLM<", ">FLOPs per token<", ">milliseconds per token<",
                                   ">K, tokens per patch<", ">tiny<", ">training<", ">generation<"})
        BOOST_TEST(has(plot, text), text << " is missing in " << plot);
    BOOST_TEST(!has(plot, "bits per byte"), plot);
    auto const warmed = "\"warmup\": \"1\"";  // a tenth of 8 steps, rounded to 1
    BOOST_TEST(has(shop().content("swept/tiny/autoencoder/checkpoints/step-00000001/state.json"), warmed));
    BOOST_TEST(has(shop().content("swept/tiny/calm/checkpoints/step-00000008/state.json"), warmed));

    // Repeating the command resumes the sweep: trained models are kept.
    auto const again = shop().program(
        "sweep --configs tiny --tokenizer markov --data markov:4000 --autoencoder-tokens 4096 --tokens 8192 --block 64 "
        "--samples 2 --positions 100 --out swept");
    BOOST_REQUIRE_MESSAGE(again.status == 0, again.err);
    BOOST_TEST(has(again.err, "the run in swept/tiny/calm is finished"));
    auto cells_again = cells_of(shop().content("swept/sweep.tsv"));
    for (auto const* const timed : {"ms per patch", "ms per token"}) cells_again[timed] = cells.at(timed);
    BOOST_TEST((cells_again == cells));
    BOOST_TEST(has(shop().content("swept/tiny/calm/run.json"), "\"sweep\""));

    auto const both = shop().program("sweep --configs tiny --tokenizer markov --data markov:4000 --minutes 1 --tokens "
                                     "1 --autoencoder-minutes 1 --out no");
    BOOST_TEST(both.status == 2);
    BOOST_TEST(has(both.err, "give exactly one of --minutes, --tokens, --teraflops"));
}

BOOST_AUTO_TEST_CASE(options_and_seeds_vary_in_a_sweep) {
    std::string const sweep =
        "sweep --configs tiny --tokenizer markov --data markov:4000 --autoencoder-tokens 1 --block 64 "
        "--samples 2 --positions 50 --out varied --vary ";
    auto const refused = [&](std::string const& line) {
        auto const made = shop().program(line);
        BOOST_TEST(made.status == 2, made.err);
        return made.err;
    };
    auto const swept = shop().program(sweep + "head-samples=2,4 --seeds 1,2 --tokens 5000");
    BOOST_REQUIRE_MESSAGE(swept.status == 0, swept.err);
    auto const table = shop().content("varied/sweep.tsv");
    for (auto const* const one :
         {"head-samples=2, seed=1", "head-samples=2, seed=2", "head-samples=4, seed=1", "head-samples=4, seed=2"}) {
        BOOST_TEST(has(swept.out, "\ntiny, " + std::string(one)), swept.out);
        BOOST_TEST(has(table, "\t" + std::string(one) + "\n"), table);
    }
    BOOST_TEST(has(swept.out, "\ntiny, head-samples=4: BrierLM "), swept.out);
    BOOST_TEST(has(swept.out, ", mean of 2 seeds\n"), swept.out);
    BOOST_TEST(has(shop().content("varied/sweep.svg"), ">head-samples<"));
    // Samples of the head cost FLOPs, and leave the autoencoder alone.
    BOOST_TEST(!shop().content("varied/tiny/autoencoder,seed=2/model.safetensors").empty());
    auto const flops = [&](std::string const& row) {
        auto const begin = table.rfind('\n', table.find(row)) + 1;
        return std::stod(table.substr(begin + std::string("tiny\t4\t32\t").size()));
    };
    BOOST_TEST(flops("head-samples=4, seed=1") > 1.01 * flops("head-samples=2, seed=1"));

    BOOST_TEST(has(refused(sweep + "head-samples=2,4 --seeds 1,2 --tokens 1"),
                   "choose another --out, or remove the directory"));
    BOOST_TEST(has(refused(sweep + "head-samples=1 --tokens 1"), "--head-samples: expected a whole number from 2"));
    BOOST_TEST(has(refused(sweep + "head-sample=2 --tokens 1"), "did you mean head-samples?"));
    BOOST_TEST(has(refused(sweep + "patch_size=0 --tokens 1"), "patch_size: expected a whole number from 1"));
    BOOST_TEST(has(refused(sweep + "learning-rate=0.1,0.1 --tokens 1"), "found 0.1 twice"));
}
