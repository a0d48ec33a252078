// An autoregressive model in the programs: training, resuming, generation, evaluation and comparison.

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "calm/io/convert_model.hpp"
#include "calm/io/safetensors.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"
#include "support/stored.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

std::string const training =
    "train ar --config tiny-ar --tokenizer tokenizer.model --data stories:4000 --batch 2 --block "
    "32 --warmup 2 --threads 1 --seed 3 ";

// A folder with a tokenizer and a model trained for a few steps, made once.
class workshop {
public:
    workshop() {
        good("train tokenizer --vocabulary 300 --data stories:4000 --out tokenizer.model");
        said_ = good(training + "--steps 6 --evaluate-every 3 --out ar").err;
    }
    ran run(std::string const& line) const { return run_in(folder_, line); }
    ran good(std::string const& line) const {
        auto made = run(line);
        BOOST_REQUIRE_MESSAGE(made.status == 0, line + ": " + made.err);
        return made;
    }
    // The error message for a line with a command-line mistake.
    std::string refused(std::string const& line, int status = 2) const {
        auto const made = run(line);
        BOOST_TEST(made.status == status, line << ": " << made.err);
        return made.err;
    }
    std::string content(std::string const& name) const { return folder_.content(name); }
    temporary_folder const& folder() const { return folder_; }
    std::string const& said() const { return said_; }

private:
    temporary_folder folder_;
    std::string said_;
};

workshop const& shop() {
    static workshop const one;
    return one;
}

std::string const smollm2 = CALM_FIXTURES_DIR "/tokenizers/smollm2.json";

// A directory as transformers saves it, made once: bf16, SmolLM2's kind of tokenizer without a row for PAD, and texts
// that end at two ids.
std::string published() {
    std::string name = "published";
    auto const& folder = shop().folder();
    if (std::filesystem::exists(folder.path(name))) return name;
    shop().good("train ar --config tiny-ar --tokenizer " + smollm2 +
                " --data stories:4000 --batch 2 --block 32 --steps 6 --warmup 2 --out scratch; mkdir " + name);
    auto const scratch = calm::read_model_description(folder.path("scratch"));
    auto tensors = calm::tensors_of(scratch);
    auto const rows = scratch.vocabulary();
    for (auto& one : tensors)
        if (one.shape.front() == rows) {
            one.bytes = one.bytes.first(one.bytes.size() / static_cast<std::size_t>(rows) *
                                        static_cast<std::size_t>(--one.shape.front()));
        }
    calm::write_safetensors(folder.path(name + "/model.safetensors"), tensors, {{"format", "pt"}},
                            calm::stored_type::bf16);
    auto config = calm::test::configuration_in(folder.path("scratch"));
    for (auto const* const key : {"calm", "pad_token_id"}) config.erase(key);
    config["vocab_size"] = rows - 1;
    config["torch_dtype"] = "bfloat16";
    config["bos_token_id"] = rows - 4;
    config["eos_token_id"] = {rows - 3, rows - 2};
    static_cast<void>(folder.with(name + "/config.json", config.dump()));
    static_cast<void>(folder.with(name + "/tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})"));
    std::filesystem::copy(smollm2, folder.path(name + "/tokenizer.json"));
    return name;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_is_trained_measured_and_writes) {
    for (auto const* const part : {"tiny-ar: ", "held-out loss", "bits per byte", "perplexity", "BrierLM"})
        BOOST_TEST(has(shop().said(), part), part << " is missing in " << shop().said());
    for (auto const* const file : {"config.json", "model.safetensors", "tokenizer.model", "bigram.counts", "run.json",
                                   "metrics.jsonl", "samples.jsonl", "options.toml"})
        BOOST_TEST(std::filesystem::exists(shop().folder().path(std::string("ar/") + file)), file);
    BOOST_TEST(has(shop().content("ar/metrics.jsonl"), "\"bits_per_byte\":"));

    auto const e = shop().good("evaluate --model ar --data stories:1500 --samples 4");
    simdjson::dom::parser parser;
    simdjson::dom::object const object = parser.parse(e.out);
    BOOST_TEST(object["block"].get_int64().value() == 32);
    BOOST_TEST(object["perplexity"].get_double().value() > 1);
    BOOST_TEST(object["bits_per_byte"].get_double().value() > 0);
    BOOST_TEST(object["bits_per_byte_se"].get_double().value() > 0);
    BOOST_TEST(object["head_loss"].is_null());
    BOOST_TEST(object["token_accuracy"].is_null());
    BOOST_TEST(has(e.err, "perplexity"));
    BOOST_TEST(shop().good("evaluate --model ar --data stories:1500 --samples 4 --threads 2").out == e.out);

    auto const write =
        std::string("generate --model ar --prompt One --max-tokens 20 --temperature 0.8 --top-k 40 --top-p 0.9");
    auto const text = shop().good(write);
    BOOST_TEST(text.out.starts_with("One"));
    BOOST_TEST(has(text.err, "1.00 draws and "));
    BOOST_TEST(has(text.err, " ms per token"));
    BOOST_TEST(!has(text.err, "patch"));
    BOOST_TEST(shop().good(write).out == text.out);
    BOOST_TEST(shop().good(write + " --seed 2").out != text.out);
    auto const greedy = shop().good("generate --model ar --prompt One --max-tokens 20 --temperature 0");
    BOOST_TEST(shop().good("generate --model ar --prompt One --max-tokens 20 --temperature 0 --seed 9").out ==
               greedy.out);
    BOOST_TEST(shop().good("generate --model ar --prompt One --max-tokens 20 --top-k 1").out == greedy.out);

    // JSON lines: a text is numbered by its line and does not depend on other lines.
    auto const lines = shop().good("printf '{\"id\": 1, \"prompt\": \"A\"}\\n{\"id\": 2, \"prompt\": \"One\"}\\n' "
                                   ">prompts.jsonl; generate --model ar "
                                   "--jsonl prompts.jsonl --max-tokens 9");
    auto const one_by_one = shop().good("generate --model ar --jsonl prompts.jsonl --max-tokens 9 --at-once 1");
    BOOST_TEST(lines.out == one_by_one.out);
    BOOST_TEST(has(lines.err, " ms per token"));
    BOOST_TEST(has(lines.out, "{\"id\":2,"));

    auto const told = shop().good("inspect --model ar").out;
    for (auto const* const part :
         {"autoregressive model", "tiny-ar, compiled into this program", "lm_head", "stories:4000"})
        BOOST_TEST(has(told, part), part);
    shop().good("convert --model ar --out ar.bf16 --dtype bf16");
    shop().good("evaluate --model ar.bf16 --data stories:1500 --positions 50");
}

// Other programs look for them in config.json. In one without them, convert adds them.
BOOST_AUTO_TEST_CASE(a_model_states_its_special_tokens) {
    shop().good(R"(cp -r ar silent; sed -i 's/\("[a-z]*_token_id": \)[0-9]*/\1null/' silent/config.json; )"
                "convert silent --out stated");
    for (auto const* const name : {"ar", "stated"}) {
        auto const text = shop().content(name + std::string("/config.json"));
        for (auto const* const part : {"\"bos_token_id\": 297", "\"eos_token_id\": 298", "\"pad_token_id\": 299"})
            BOOST_TEST(has(text, part), name << ": " << part);
    }
    BOOST_TEST(has(shop().content("silent/config.json"), "\"eos_token_id\": null"));
}

// A published directory with tiktoken's lines, whose first token is not byte 0, and no description of them.
BOOST_AUTO_TEST_CASE(a_pattern_opens_a_model_with_tiktoken_lines) {
    shop().good("mkdir lines; cp ar/model.safetensors lines; "
                "(sed 1d ar/tokenizer.model; head -1 ar/tokenizer.model) | awk '{print $1, NR - 1}' "
                ">lines/tokenizer.model");
    auto config = nlohmann::json::parse(shop().content("ar/config.json"));
    for (auto const* const key : {"calm", "bos_token_id", "eos_token_id", "pad_token_id"}) config.erase(key);
    static_cast<void>(shop().folder().with("lines/config.json", config.dump()));
    std::string const by_name = " --pattern gpt2";
    for (std::string const line : {"generate lines --prompt One --max-tokens 4",
                                   "evaluate lines --data stories:1500 --positions 20", "tokenize lines --text One"}) {
        BOOST_TEST(has(shop().refused(line, 6), "give --pattern llama3, gpt2, cl100k, o200k or qwen"));
        shop().good(line + by_name);
    }
    shop().good("inspect lines; convert lines --out copied");
    BOOST_TEST(has(shop().good("inspect copied" + by_name).out, "tokenizer.model, pattern gpt2, fingerprint"));
    BOOST_TEST(has(shop().refused("generate ar" + by_name, 6), "by the pattern gpt2; leave it out"));
}

// A model with any id among its eos_token_id: its texts end at once.
BOOST_AUTO_TEST_CASE(a_text_ends_at_each_eos_of_its_model) {
    shop().good(R"(cp -r ar ends; sed -i "s/\"eos_token_id\": 298/\"eos_token_id\": [$(seq -s, 0 400)]/" )"
                "ends/config.json");
    auto const made = shop().good("printf '{\"id\": 1, \"prompt\": \"One\"}\\n' >one.jsonl; "
                                  "generate --model ends --jsonl one.jsonl --max-tokens 20");
    BOOST_TEST(has(made.out, "\"tokens\":0,"), made.out);
    BOOST_TEST(has(made.out, "\"stopped_at_eos\":true"), made.out);
}

BOOST_AUTO_TEST_CASE(a_text_ends_before_a_stop_string) {
    std::string const write = "generate --model ar --prompt One --max-tokens 100 --temperature 1 --seed 3";
    auto const text = shop().good(write).out;
    auto const at = text.find_first_of("abcdefghijklmnopqrstuvwxyz", 3);
    BOOST_REQUIRE(at != std::string::npos);
    auto const ended = shop().good(write + " --stop " + text[at]);
    BOOST_TEST(ended.out == text.substr(0, at) + "\n");
    BOOST_TEST(has(ended.err, "; stopped at --stop"), ended.err);
}

// With patch level first: stopped in either phase, a resumed run is byte-identical to an uninterrupted one.
BOOST_AUTO_TEST_CASE(a_run_of_two_phases_resumes) {
    auto const run = training + "--patch-level 2:0.5 --steps 12 --save-every 2 --evaluate-every 20 --keep 9 ";
    auto const whole = shop().good(run + "--out whole");
    BOOST_TEST(has(whole.err, "patch level: positions of 2 tokens for a share of 0.5 of the tokens (the first 0.333 of "
                              "the run): 0.75 of the cost"),
               whole.err);
    for (std::string const last : {"02", "04", "08"}) {
        auto const parts = "parts" + last;
        shop().good("cp -r whole " + parts + "; rm -r $(ls -d " + parts + "/checkpoints/step-* | awk -F- '$NF > " +
                    last + "') " + parts + "/best; true");
        auto const again = shop().good(run + "--out " + parts);
        BOOST_TEST(has(again.err, "resumes after step " + std::to_string(std::stoi(last))), again.err);
        for (auto const* const file : {"/model.safetensors", "/checkpoints/step-00000012/training.safetensors",
                                       "/checkpoints/step-00000012/state.json"}) {
            auto const same = [&](std::string const& of) {
                auto text = shop().content(of + file);
                if (auto const at = text.find("\"seconds\""); at != std::string::npos)
                    text.erase(at, text.find('\n', at) - at);
                if (auto const at = text.find("\"log_bytes\""); at != std::string::npos)
                    text.erase(at, text.find('\n', at) - at);
                return text;
            };
            BOOST_TEST((same(parts) == same("whole")), parts << file);
        }
    }
    BOOST_TEST(has(shop().content("whole/checkpoints/step-00000012/state.json"), "\"first_phase_steps\": 4"));
    // The start of the second phase depends on the length of the run.
    BOOST_TEST(has(shop().refused(training + "--patch-level 2:0.5 --steps 16 --out whole"), "  steps   12   16"));
    auto const plan = shop().good(training + "--patch-level 4:0.5 --steps 300 --dry-run --out none").out;
    BOOST_TEST(has(plan, "0.625 of the cost"), plan);
    // 300 steps of 64 tokens, plus three times as many in the 60 steps of the first phase.
    BOOST_TEST(has(plan, "tokens          3.072e+04"), plan);
}

BOOST_AUTO_TEST_CASE(models_are_compared) {
    shop().good("train tokenizer --vocabulary 280 --data stories:4000 --out other.model");
    shop().good(
        "train ar --config tiny-ar --tokenizer other.model --data stories:4000 --batch 2 --block 32 --steps 2 --out "
        "other");
    auto const compared = shop().good("evaluate --model ar --model other --data stories:1500 --positions 60");
    BOOST_TEST(std::count(compared.out.begin(), compared.out.end(), '\n') == 2);
    auto const table = compared.err.substr(compared.err.find("model  "));
    BOOST_TEST(has(table, "ar     autoregressive"), table);
    BOOST_TEST(has(table, "other  autoregressive                        -                - "), table);
    BOOST_TEST(has(table, "compare only models with the same tokenizer"), table);

    auto const swept =
        shop().good("sweep --configs tiny-ar --tokenizer markov --data markov:4000 --teraflops 0.01 --block 64 "
                    "--samples 2 --positions 100 --out swept");
    BOOST_TEST(has(swept.out, "softmax"), swept.out);
    auto const tsv = shop().content("swept/sweep.tsv");
    BOOST_TEST(has(tsv, "\ntiny-ar\t1\t\t"), tsv);
    BOOST_TEST(has(swept.out, "plotted in swept/sweep.svg"), swept.out);
    BOOST_TEST(std::filesystem::exists(shop().folder().path("swept/tiny-ar/ar/model.safetensors")));
}

// Options that a run keeps as begun do not follow from the options of a later call.
BOOST_AUTO_TEST_CASE(options_written_by_a_run_resume_it) {
    std::string const run = "train ar --config tiny-ar --tokenizer tokenizer.model --data stories:4000 --batch 2 "
                            "--block 32 --threads 1 --seed 3 --out filed ";
    std::string const by_file = "train ar --config-file filed/options.toml";
    shop().good(run + "--steps 4 --accumulation 2");
    BOOST_TEST(has(shop().good(by_file).err, "is finished: 4 steps"));
    shop().good(run + "--steps 30");
    for (auto const* const line : {"warmup = 1  # as begun\n", "accumulation = 2  # as begun\n"})
        BOOST_TEST(has(shop().content("filed/options.toml"), line), shop().content("filed/options.toml"));
    BOOST_TEST(has(shop().good(by_file).err, "is finished: 30 steps"));
    shop().good(run + "--minutes 0.02");
    shop().good(by_file);
}

BOOST_AUTO_TEST_CASE(the_same_text_may_have_another_name) {
    shop().good("seq 1 4000 >text.txt; ln -s text.txt link.txt; seq 1 4001 >other.txt");
    std::string const run = "train ar --config tiny-ar --tokenizer tokenizer.model --batch 2 --block 32 --threads 1 "
                            "--warmup 1 --out spelled ";
    shop().good(run + "--steps 2 --data text.txt");
    int steps = 2;
    std::string before = "text.txt";
    for (auto const& name : {std::string("./text.txt"), shop().folder().path("text.txt"), std::string("link.txt")}) {
        auto const said = shop().good(run + "--steps " + std::to_string(++steps) + " --data '" + name + "'").err;
        BOOST_TEST(has(said, " is the same text as before, which was " + before), said);
        BOOST_TEST(!has(said, "with other settings"), said);
        before = name;
    }
    auto const refused = shop().refused(run + "--steps 9 --data other.txt");
    BOOST_TEST(has(refused, "holds a run that was started with other settings"), refused);
    BOOST_TEST(has(refused, "other.txt"), refused);
}

BOOST_AUTO_TEST_CASE(a_model_has_the_positions_that_it_is_trained_on) {
    shop().good("seq 1 4000 >long.txt");
    std::string const run = "train ar --config tiny-ar --tokenizer tokenizer.model --data long.txt --threads 1 "
                            "--batch 1 --warmup 0 --out far --block ";
    shop().good(run + "3000 --steps 1");
    auto const positions = [] {
        auto const text = shop().content("far/config.json");
        return std::stoi(text.substr(text.find("max_position_embeddings") + 25));
    };
    BOOST_TEST(positions() == 3000);
    // 2,692 characters that never merge into longer tokens.
    auto const written = shop().good("generate --model far --prompt \"$(seq -s ' ' 700)\" --max-tokens 1 --threads 1");
    BOOST_TEST(written.out.size() > 2000U);
    shop().good(run + "64 --steps 2 --override");
    BOOST_TEST(positions() == 3000);  // the model was trained on these positions
}

// --teraflops counts all training FLOPs, or with --count paper only those that the paper counts.
BOOST_AUTO_TEST_CASE(equal_flops_include_autoencoder_and_optimizer) {
    std::string const sweep = "sweep --tokenizer markov --data markov:4000 --muon 2 --block 64 --samples 2 "
                              "--positions 100 --threads 1 --autoencoder-tokens 8192 --configs tiny ";
    auto const cells = [](std::string const& folder, std::string const& name) {
        std::istringstream text(shop().content(folder + "/sweep.tsv"));
        std::string names, line;
        std::getline(text, names);
        while (std::getline(text, line) && !line.starts_with(name + "\t")) {
        }
        std::map<std::string, double> all;
        std::istringstream keys(names), values(line);
        for (std::string key, value; std::getline(keys, key, '\t') && std::getline(values, value, '\t');)
            if (key.find("FLOPs") != std::string::npos || key == "training tokens") all[key] = std::stod(value);
        return all;
    };
    double const given = 4e10;
    auto const said = shop().good(sweep + "tiny-ar --teraflops 0.04 --out all").out;
    BOOST_TEST(has(said, "all TF"), said);
    for (auto const& [name, step] : {std::pair("tiny", 1024.0), std::pair("tiny-ar", 256.0)}) {
        auto const row = cells("all", name);
        BOOST_TEST(row.at("Muon's FLOPs per token") > 0.1 * row.at("training FLOPs per token"), name);
        BOOST_TEST(row.at("all training FLOPs") <= given * 1.0001, name);
        BOOST_TEST(row.at("all training FLOPs") > given - 1.0001 * step * row.at("training FLOPs per token"), name);
        auto const before = row.at("autoencoder FLOPs");
        BOOST_TEST((name == std::string("tiny") ? before > 0.25 * given : before == 0), name);
    }
    shop().good(sweep + "--teraflops 0.02 --count paper --out paper");
    auto const row = cells("paper", "tiny");
    double const own = row.at("training FLOPs per token") - row.at("Muon's FLOPs per token");
    BOOST_TEST(own * row.at("training tokens") <= 2e10 * 1.0001);
    BOOST_TEST(own * (row.at("training tokens") + 1024) > 2e10 * 0.9999);
    BOOST_TEST(row.at("all training FLOPs") > 1.5 * 2e10);
    BOOST_TEST(has(shop().refused(sweep + "--teraflops 0.001 --out none"),
                   "--teraflops 0.001: the autoencoder of tiny alone takes"));
}

// Both kinds of models in one table, each with its own scores, and both trained by one sweep.
BOOST_AUTO_TEST_CASE(a_calm_is_compared_with_an_autoregressive_model) {
    std::string const text = "--data stories:4000 --steps 2 --threads 1 ";
    shop().good("train autoencoder --config tiny --tokenizer tokenizer.model --batch 64 --out ae " + text);
    shop().good("train calm --config tiny --autoencoder ae --batch 2 --block 32 --out calm " + text);
    std::string const how = " --data stories:1500 --block 32 --positions 60 --samples 4 --seed 1";
    auto const both = shop().good("evaluate --model calm --model ar" + how);
    auto const of_calm = shop().good("evaluate --model calm" + how).out;
    auto const of_ar = shop().good("evaluate --model ar" + how).out;
    BOOST_TEST(both.out == of_calm + of_ar);
    auto const table = both.err.substr(both.err.find("model  kind"));
    std::istringstream lines(table);
    std::string head, of_calm_in_table, of_ar_in_table;
    std::getline(lines, head), std::getline(lines, of_calm_in_table), std::getline(lines, of_ar_in_table);
    BOOST_TEST(of_calm_in_table.starts_with("calm   CALM, K 4, energy "), table);
    BOOST_TEST(of_ar_in_table.starts_with("ar     autoregressive "), table);
    BOOST_TEST(of_calm_in_table.ends_with(" -"), table);  // bits per byte, which a CALM does not have
    BOOST_TEST(of_ar_in_table.find(" +- ") != of_ar_in_table.rfind(" +- "), table);

    auto const swept = shop().good(
        "sweep --configs tiny tiny-ar --tokenizer markov --data markov:4000 --autoencoder-tokens 1024 --tokens 1024 "
        "--block 64 --samples 2 --positions 100 --threads 1 --out both");
    auto const tsv = shop().content("both/sweep.tsv");
    BOOST_TEST(has(tsv, "\ntiny\t4\t32\t"), tsv);
    BOOST_TEST(has(tsv, "\ntiny-ar\t1\t\t"), tsv);
    BOOST_TEST(has(swept.out, "plotted in both/sweep.svg"), swept.out);
    BOOST_TEST(has(swept.out, "energy"), swept.out);
    BOOST_TEST(has(swept.out, "softmax"), swept.out);
    for (std::string const stage : {"tiny/autoencoder", "tiny/calm", "tiny-ar/ar"})
        BOOST_TEST(std::filesystem::exists(shop().folder().path("both/" + stage + "/model.safetensors")), stage);
}

// Scores are shown next to the scores of another `train ar` run on the same text.
BOOST_AUTO_TEST_CASE(scores_are_compared_with_an_autoregressive_run) {
    // Its seconds are set to 0, so that its last scores are always comparable.
    shop().good("cp -r ar quick; sed -i 's/\"seconds\":[0-9.e+-]*/\"seconds\":0/' quick/metrics.jsonl");
    auto const judged = shop().good(training + "--steps 2 --baseline quick --out judged");
    BOOST_TEST(has(judged.err, "autoregressive after 0 s: Brier-1 "), judged.err);
    BOOST_TEST(!has(judged.err, "--baseline"), judged.err);  // both runs use the same text
    BOOST_TEST(!has(shop().content("judged/metrics.jsonl"), "\"baseline_brier_1\":null"));
    auto const other =
        "train ar --config tiny-ar --data stories:4000 --batch 2 --block 16 --steps 1 --threads 1 --baseline quick ";
    BOOST_TEST(has(shop().good(other + std::string("--tokenizer tokenizer.model --out other-text")).err,
                   "another --data, --data-seed, --holdout, --mode or --block"));

    shop().good("train tokenizer --vocabulary 290 --data stories:4000 --out another.model");
    BOOST_TEST(has(shop().refused(other + std::string("--tokenizer another.model --out no")),
                   "--baseline: expected a run with the same tokenizer"));
    BOOST_TEST(
        has(shop().refused(training + "--steps 1 --baseline nowhere --out no"), "--baseline: there is no nowhere"));
    BOOST_TEST(!std::filesystem::exists(shop().folder().path("no")));
}

// Weights, sizes, tokenizer and the ids that end a text come from the directory.
BOOST_AUTO_TEST_CASE(a_published_model_is_trained_further) {
    auto const init = published();
    auto const& folder = shop().folder();
    shop().good("for i in $(seq 1 40); do echo \"{\\\"text\\\": \\\"$i apples and $i pears are fruit.\\\"}\"; done "
                ">fruit.jsonl");
    std::string const train = "train ar --init " + init + " --data fruit.jsonl --holdout 4:3 --batch 2 --block 32 ";

    // At a learning rate of almost 0 the weights stay those of the directory.
    BOOST_TEST(has(shop().good(train + "--learning-rate 1e-30 --steps 1 --out same").err, "tiny-ar: "));
    shop().good("convert " + init + " --out wide --dtype f32");
    calm::test::check_same(*calm::read_model_description(folder.path("same")).weights,
                           *calm::read_model_description(folder.path("wide")).weights);

    BOOST_TEST(has(shop().good(train + "--steps 2 --out further").err, "vocabulary 744"));
    auto const config = calm::test::configuration_in(folder.path("further"));
    BOOST_TEST(config["vocab_size"] == 744);
    BOOST_TEST(config["eos_token_id"] == nlohmann::json({740, 742, 743}));
    BOOST_TEST(config["pad_token_id"].is_null());
    BOOST_TEST(config["calm"]["data"]["mode"] == "published");  // its BOS is its EOS
    BOOST_TEST(config["calm"]["tokenizer"]["bos_first"] == false);
    BOOST_TEST(shop().content("further/tokenizer.json") == shop().content(init + "/tokenizer.json"));
    BOOST_TEST(shop().content("further/tokenizer_config.json") == shop().content(init + "/tokenizer_config.json"));

    BOOST_TEST(has(shop().good(train + "--steps 30 --out further").err, "resumes after step 2"));
    for (auto const* const model : {"published", "further"})
        shop().good(std::string("generate ") + model + " --prompt One --max-tokens 4");
    auto const loss = [&](std::string const& model) {
        auto const told =
            shop().good("evaluate " + model + " --data fruit.jsonl --holdout 4:3 --mode published --block 32");
        return nlohmann::json::parse(told.out)["perplexity"].get<double>();
    };
    BOOST_TEST(loss("further") < loss("published"));

    // A model that was trained from it is one to start from, too, and so is one that was trained here.
    shop().good("train ar --init further --tokenizer " + smollm2 +
                " --data fruit.jsonl --block 32 --steps 1 --out again");
    shop().good("train ar --init ar --data stories:4000 --block 32 --steps 1 --out here");
    BOOST_TEST(shop().content("here/tokenizer.model") == shop().content("ar/tokenizer.model"));
    auto const plan = shop().good(train + "--dry-run --out planned").out;
    BOOST_TEST(has(plan, "tiny-ar"), plan);
}

BOOST_AUTO_TEST_CASE(a_model_to_start_from_must_fit) {
    auto const init = published();
    auto const& folder = shop().folder();
    std::string const train = "train ar --data stories:4000 --block 32 --steps 1 --out no --init ";
    auto const is_refused = [&](std::string const& line, int status, std::string const& says) {
        auto const said = shop().refused(line, status);
        BOOST_TEST(has(said, says), line << ": " << said);
    };
    is_refused(train + init + " --set hidden_size=64", 2, "--set: the model of --init has its own sizes; leave --set");
    is_refused(train + init + " --config tiny-ar --set hidden_size=64", 3,
               "does not match the configuration tiny-ar:hidden_size=64: hidden_size: expected 64, found 128. Leave "
               "--config and --set out");
    is_refused(train + init + " --tokenizer tokenizer.model", 6, "--init: expected a model of the tokenizer with");
    is_refused(train + "ar --tokenizer " + smollm2, 6, "leave --tokenizer out to train with the model's own");
    is_refused("train autoencoder --data stories:4000 --steps 1 --out no --init " + init, 3,
               "--init: expected an autoencoder, found an autoregressive model: use train ar");
    is_refused("train ar --data stories:4000 --out no", 2, "--config is needed without --init");
    is_refused("train ar --data stories:4000 --config tiny-ar --out no", 2, "--tokenizer is needed without --init");
    shop().good("cp -r " + init + " bare; rm bare/tokenizer.json");
    is_refused(train + "bare", 6, "put tokenizer.json, or tiktoken's file as tokenizer.model, into bare");
    for (auto const& [key, value] :
         {std::pair("attention_bias", nlohmann::json(true)),
          std::pair("rope_scaling", nlohmann::json{{"rope_type", "yarn"}, {"factor", 4.0}})}) {
        auto config = calm::test::configuration_in(folder.path(init));
        config[key] = value;
        shop().good("rm -rf other; cp -r " + init + " other");
        static_cast<void>(folder.with("other/config.json", config.dump()));
        is_refused(train + "other", 5, std::string("key '") + key);
    }
    BOOST_TEST(!std::filesystem::exists(folder.path("no")));
}

BOOST_AUTO_TEST_CASE(options_of_another_kind_of_model_are_refused) {
    auto const text = std::string(" --data stories:400 --out no");
    BOOST_TEST(has(shop().refused("train autoencoder --config tiny-ar --tokenizer tokenizer.model" + text),
                   "'tiny-ar' is for an autoregressive model, expected one for a CALM: use train ar"));
    BOOST_TEST(has(shop().refused("train ar --config tiny --tokenizer tokenizer.model" + text),
                   "'tiny' is for a CALM, expected one for an autoregressive model: use train calm"));
    BOOST_TEST(has(shop().refused("train ar --config tiny-ar --tokenizer tokenizer.model --patch-level 1:0.5" + text),
                   "expected K:SHARE, such as 4:0.67"));
    BOOST_TEST(has(shop().refused("train ar --config tiny-ar --tokenizer tokenizer.model --patch-level 4" + text),
                   "expected K:SHARE, such as 4:0.67"));
    BOOST_TEST(has(shop().refused("generate --model ar --sampler batch"),
                   "expected exact, the rule of an autoregressive model, found 'batch'"));
    BOOST_TEST(has(shop().refused("generate --model ar --temperature -1"), "expected a decimal of at least 0"));
    BOOST_TEST(has(shop().refused("generate --model ar --top-p 1.5"), "--top-p"));
    BOOST_TEST(has(shop().refused("train calm --config tiny --autoencoder ar" + text, 3), "an autoregressive model"));
}
