// `train text` as users meet it: complete, interrupted, and with changed options.

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/programs.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;
using calm::test::unaligned;

namespace fs = std::filesystem;

namespace {

std::string const batch = calm::test::is_sanitized ? "64" : "256";  // of the autoencoder
std::string const sizes = "--config tiny --batch 2 --block 64 --autoencoder-batch " + batch + " --threads 1 --seed 3 ";
// One document has no held-out part, so there are no evaluations and the runs are short.
std::string const of_a_text = "train text --data text.txt " + sizes;

std::string const few = of_a_text + "--autoencoder-steps 6 --steps 5 ";

class workshop {
public:
    workshop() { good("seq 1 4000 >text.txt"); }
    ran run(std::string const& line) const { return run_in(folder, line); }
    ran good(std::string const& line) const {
        auto made = run(line);
        BOOST_REQUIRE_MESSAGE(made.status == 0, line + ": " + made.err);
        return made;
    }
    std::string refused(std::string const& line, int status = 2) const {
        auto const made = run(line);
        BOOST_TEST(made.status == status, line << ": " << made.err);
        return made.err;
    }
    // Runs a command in the background and sends a signal once it has written files that match the pattern in `out`.
    // Returns the command's status.
    ran interrupted(std::string const& command, std::string const& out, std::string const& pattern,
                    std::string const& signal) const {
        return calm::test::interrupted_run(
            folder, "touch before; " + command + " --out " + out, out,
            "[ -n \"$(find " + out + "/" + pattern + " -maxdepth 0 -newer before 2>/dev/null)\" ]", signal);
    }
    bool there(std::string const& name) const { return fs::exists(folder.path(name)); }
    void same_weights(std::string const& a, std::string const& b,
                      std::vector<std::string> const& models = {"/autoencoder", "/model"}) const {
        for (auto const& model : models)
            BOOST_TEST(
                (folder.content(a + model + "/model.safetensors") == folder.content(b + model + "/model.safetensors")),
                a + " " + b + model);
        BOOST_TEST(folder.content(a + "/tokenizer.model") == folder.content(b + "/tokenizer.model"));
        BOOST_TEST(!folder.content(a + "/model/model.safetensors").empty());
    }

    temporary_folder folder;
};

}  // namespace

BOOST_AUTO_TEST_CASE(one_command_equals_three_commands) {
    workshop const shop;
    auto const made = shop.good(few + "--out run");
    for (auto const* const part :
         {"the plan for 1 document, ", "vocabulary", "bytes: too little text or time", "as given", "kl-weight", "0.02",
          "the autoencoder:", "the model:", "wrote run/tokenizer.model: 259 tokens", "wrote run/autoencoder",
          "wrote run/model", "to generate: generate run --prompt 'Once upon a time'",
          "nothing was held out, so nothing was measured", "to plot:     plot run\n"})
        BOOST_TEST(has(made.err, part), part << " is missing in " << made.err);
    BOOST_TEST(made.out == "");
    BOOST_TEST(has(shop.refused(few + "--holdout 10:9 --dry-run --out none", 4),
                   "train: --holdout 10:9: in the text held out for evaluation: no document is left"));
    shop.good(
        "train tokenizer --vocabulary 259 --data text.txt --out three.model; "
        "train autoencoder --config tiny --tokenizer three.model --data text.txt --batch " +
        batch +
        " --steps 6 "
        "--learning-rate 3e-3 --warmup 0 --kl-weight 0.02 --random-patches 0.15 --schedule cosine --threads 1 --seed 3 "
        "--out autoencoder; "
        "train calm --config tiny --autoencoder autoencoder --data text.txt --batch 2 --block 64 --steps 5 "
        "--learning-rate 2e-3 --warmup 0 --schedule cosine --threads 1 --seed 3 --out model; "
        "mkdir three; mv three.model three/tokenizer.model; mv autoencoder model three");
    shop.same_weights("run", "three");
    // Both stages use the text that the first tokenised.
    auto const tokenised = made.err.find("tokenises the text into run/text.tokens\n");
    BOOST_TEST(tokenised != std::string::npos, made.err);
    BOOST_TEST(made.err.find("tokenises", tokenised + 1) == std::string::npos, made.err);
    BOOST_TEST((shop.folder.content("run/text.tokens") == shop.folder.content("three/model/text.tokens")));
    for (auto const* const stage : {"autoencoder", "model"})
        BOOST_TEST(!shop.there(std::string("run/") + stage + "/text.tokens"));
    shop.good("generate run --prompt 'Once upon a time' --max-tokens 4 --pool 2");
    auto const seen = shop.good("evaluate run --data text.txt --positions 8 --samples 2").err;
    BOOST_TEST(has(seen, "run/model was trained on text.txt: the score is of text that the model has seen"), seen);
    auto const swept =
        shop.good("sweep --configs tiny-ar --tokenizer run/tokenizer.model --data text.txt --tokens 1024 "
                  "--block 64 --positions 8 --samples 2 --threads 1 --out swept");
    BOOST_TEST(has(swept.err, "swept/tiny-ar/ar was trained on text.txt: the score is of text that"), swept.err);
    shop.good("cp text.txt other.txt");
    BOOST_TEST(!has(shop.good("evaluate run --data other.txt --positions 8 --samples 2").err, "has seen"));
    BOOST_TEST(shop.folder.content("run/model/options.toml").find("data = [\"text.txt\"]") != std::string::npos);

    // A finished run says so.
    auto const plan = shop.folder.content("run/plan.json");
    auto const again = shop.good(few + "--out run");
    for (auto const* const part : {"resumes with the plan in run/plan.json:", "the autoencoder is trained",
                                   "the model is trained", "to generate:"})
        BOOST_TEST(has(again.err, part), part << " is missing in " << again.err);
    BOOST_TEST(!has(again.err, "step 1 "));
    BOOST_TEST(shop.folder.content("run/plan.json") == plan);

    // A damaged model is restored from its checkpoint.
    for (std::string const model : {"autoencoder", "model"}) {
        auto const file = "run/" + model + "/model.safetensors";
        auto const restored = shop.good("head -c 1000 " + file + " >cut; mv cut " + file + "; " + few + "--out run");
        BOOST_TEST(has(restored.err, "it is restored from the newest checkpoint"), restored.err);
    }
    shop.same_weights("run", "three");
    auto const record = nlohmann::json::parse(plan);
    BOOST_TEST(record["plan"]["vocabulary"] == "259");
    BOOST_TEST(record["given"]["steps"] == "5");
    BOOST_TEST(!record["given"].contains("vocabulary"));
    BOOST_TEST(record["why"]["steps"] == "as given");
    BOOST_TEST(record["done"] == (std::vector<std::string>{"autoencoder", "model"}));
}

BOOST_AUTO_TEST_CASE(a_run_interrupted_anywhere_equals_an_uninterrupted_one) {
    workshop const shop;
    auto const longer = of_a_text + "--autoencoder-steps 64 --steps 48 --save-every 8 ";
    shop.good(longer + "--out whole");
    BOOST_TEST(shop.interrupted(longer, "parts", "plan.json", "KILL").status == 137);
    BOOST_TEST(shop.interrupted(longer, "parts", "autoencoder/checkpoints/step-*/*", "KILL").status == 137);
    auto const inside = shop.interrupted(longer, "parts", "autoencoder/checkpoints/step-*/*", "INT");
    BOOST_TEST(inside.status == 130);
    BOOST_TEST(has(inside.err, "stopped by a signal; wrote parts/autoencoder"), inside.err);
    BOOST_TEST(has(inside.err, "to resume: train text --data text.txt"), inside.err);
    BOOST_TEST(shop.interrupted(longer, "parts", "model/run.lock", "KILL").status == 137);  // between the stages
    auto const stopped = shop.interrupted(longer, "parts", "model/checkpoints/step-*/*", "TERM");
    BOOST_TEST(stopped.status == 143);
    BOOST_TEST(has(stopped.err, "the autoencoder is trained"), stopped.err);
    auto const at = stopped.err.find("to resume: ");
    BOOST_TEST_REQUIRE(at != std::string::npos);
    auto const command = stopped.err.substr(at + 11, stopped.err.find('\n', at) - at - 11);
    auto const last = shop.good(command);
    BOOST_TEST(has(last.err, "resumes after step"), last.err);
    shop.same_weights("parts", "whole");
    BOOST_TEST(has(shop.refused("flock whole/text.lock " + longer + "--out whole", 10), "another process is training"));
}

BOOST_AUTO_TEST_CASE(other_choices_are_refused_or_taken) {
    workshop const shop;
    shop.good(few + "--out run");
    auto const other = shop.refused(few + "--learning-rate 2e-3 --data-seed 2 --out run");
    for (auto const* const part :
         {"run holds a run that was started with other choices:", "data-seed      1    2", "learning-rate  -    0.002",
          "or --override with the present ones; --fresh starts over"})
        BOOST_TEST(has(other, part), part << " is missing in " << other);
    BOOST_TEST(has(shop.refused(few + "--vocabulary 300 --override --out run"),
                   "--vocabulary: the models in run have 259, which --override does not change"));

    // A longer run keeps the autoencoder and the choices for it.
    auto const autoencoder = shop.folder.content("run/autoencoder/model.safetensors");
    auto const longer = of_a_text + "--autoencoder-steps 6 --steps 9 --out run";
    auto const gone_on = shop.good(longer + " --override");
    BOOST_TEST(has(gone_on.err, "as before"), gone_on.err);
    BOOST_TEST(has(gone_on.err, "resumes after step 5"), gone_on.err);
    BOOST_TEST(shop.folder.content("run/autoencoder/model.safetensors") == autoencoder);
    BOOST_TEST(has(shop.good(longer).err, "the model is trained"));

    // With --fresh the old model stays in place until the new run's first checkpoint.
    auto const model = shop.folder.content("run/model/model.safetensors");
    auto const fresh = few + "--vocabulary 300 ";
    fs::remove(shop.folder.path("run/autoencoder/metrics.jsonl"));
    auto const cut = shop.interrupted(fresh + "--fresh", "run", "autoencoder/metrics.jsonl", "KILL");
    BOOST_TEST(cut.status == 137);
    BOOST_TEST(shop.folder.content("run/model/model.safetensors") == model);
    BOOST_TEST(!has(shop.good(fresh + "--out run").err, "is trained"));
    shop.good(few + "--vocabulary 300 --out straight");
    shop.same_weights("run", "straight");
}

BOOST_AUTO_TEST_CASE(a_plan_without_a_model_may_be_changed) {
    workshop const shop;
    BOOST_TEST(has(shop.refused(few + "--vocabulary 100000 --out run", 6), "the text yields only"));
    BOOST_TEST(has(shop.refused(few + "--autoencoder-batch 255 --out run"), "--autoencoder-batch is given 2 times"));
    auto const odd = "train text --data text.txt --config tiny --threads 1 --autoencoder-steps 2 --steps 2 --batch 2 "
                     "--block 64 --out run --autoencoder-batch ";
    BOOST_TEST(has(shop.refused(odd + std::string("255")), "a batch that is a multiple"));
    auto const made = shop.good(odd + std::string("64"));
    BOOST_TEST(has(made.err, "the plan for 1 document, "), made.err);
    // A lost or damaged plan is not remade if models exist.
    auto const plan = shop.folder.content("run/plan.json");
    static_cast<void>(shop.folder.with("run/plan.json", plan.substr(0, plan.size() / 2)));
    BOOST_TEST(has(shop.refused(odd + std::string("64"), 5), "run/plan.json"));
    for (auto const& [choice, damaged, said] :
         {std::tuple("\"batch\": \"2\"", "\"batch\": \"0\"", "run/plan.json, batch: expected a number"),
          std::tuple("\"schedule\": \"cosine\"", "\"head-samples\": \"1\"",
                     "run/plan.json, plan: --head-samples: expected from 2 to"),
          std::tuple("\"vocabulary\": \"259\"", "\"head-targets\": \"3\"",
                     "run/plan.json, plan: expected a vocabulary, found none")}) {
        auto const at = plan.rfind(choice);
        BOOST_TEST_REQUIRE(at != std::string::npos);
        auto text = plan;
        static_cast<void>(
            shop.folder.with("run/plan.json", text.replace(at, std::string_view(choice).size(), damaged)));
        BOOST_TEST(has(shop.refused(odd + std::string("64"), 5), said));
        BOOST_TEST(has(shop.refused(odd + std::string("64 --dry-run"), 5), said));
    }
    fs::remove(shop.folder.path("run/plan.json"));
    BOOST_TEST(has(shop.refused(odd + std::string("64"), 10), "holds a model, but no plan.json"));
    shop.good(odd + std::string("64 --fresh"));

    auto const high = shop.refused("train text --data text.txt --config tiny --threads 1 --minutes 9 "
                                   "--autoencoder-steps 60 --autoencoder-batch 64 "
                                   "--autoencoder-learning-rate 10 --autoencoder-warmup 0 --out high",
                                   8);
    BOOST_TEST(has(high, "a lower --autoencoder-learning-rate"), high);
}

BOOST_AUTO_TEST_CASE(a_dry_run_prints_the_plan_and_writes_nothing) {
    workshop const shop;
    auto const dry = shop.good("train text --data stories:4000 --minutes 10 --dry-run --out run");
    for (auto const* const part :
         {"\n minutes 10 ", "autoencoder-minutes 2.5 ", "schedule", "cosine", "random-patches"})
        BOOST_TEST(has(unaligned(dry.out), part), part << " is missing in " << dry.out);
    BOOST_TEST(!shop.there("run"));
    // A device that the machine or the program lacks is refused as without --dry-run.
    auto const refused = shop.run(few + "--device cuda:1023 --dry-run --out run");
    auto const real = shop.run(few + "--device cuda:1023 --out run");
    BOOST_TEST((real.status == 3 || real.status == 11), real.err);
    BOOST_TEST(refused.status == real.status);
    BOOST_TEST(refused.err == real.err);
    BOOST_TEST(refused.out == "");
    shop.good(few + "--out run");
    auto const plan = shop.folder.content("run/plan.json");
    auto const there = shop.good(few + "--dry-run --out run");
    for (auto const* const part :
         {"\nautoencoder\n", "\nmodel\n", "nothing is held out", "FLOPs", "run/model, which holds a run to resume"})
        BOOST_TEST(has(there.out, part), part << " is missing in " << there.out);
    BOOST_TEST(shop.folder.content("run/plan.json") == plan);
    BOOST_TEST(shop.refused(few + "--learning-rate 1 --dry-run --out run") != "");
    BOOST_TEST(shop.folder.content("run/plan.json") == plan);
}

// A run may be inside the folder of its text: its files are not used as text, neither at first nor when resumed.
BOOST_AUTO_TEST_CASE(a_run_does_not_learn_its_own_files) {
    workshop const shop;
    shop.good("mkdir here && cp text.txt here");
    std::string const text = "cd here && train text --data . " + sizes + "--autoencoder-steps 2 --out run --steps ",
                      more = "cd here && train ar --config tiny-ar --tokenizer run/tokenizer.model --data . --batch 2 "
                             "--block 64 --skip-bad --out ar --steps ";
    std::string const left_out = "skipped ./ar and ./run: files of runs and models are not text",
                      one = "--data .: skipped ./run: files";
    BOOST_TEST(!has(shop.good(text + "2").err, "skipped"));
    BOOST_TEST(has(shop.good(text + "3 --override").err, one));
    auto const begun = shop.good(more + "2");
    BOOST_TEST(has(begun.err, one));
    BOOST_TEST(!has(begun.err, "malformed"));
    auto const gone_on = shop.good(more + "4");
    BOOST_TEST(has(gone_on.err, left_out), gone_on.err);
    BOOST_TEST(has(gone_on.err, "resumes after step 2"));
    BOOST_TEST(!has(gone_on.err, "malformed"));
    BOOST_TEST(
        has(shop.good("cd here && evaluate --model ar --data . --block 64 --positions 20 --samples 2").err, left_out));
}

BOOST_AUTO_TEST_CASE(a_text_that_fills_no_block_is_refused_before_the_first_step) {
    workshop const shop;
    shop.good("printf a >little.txt; mkdir two; cp text.txt two/a.txt; cp little.txt two/b.txt");
    std::string const steps = sizes + "--autoencoder-steps 2 --steps 2 ";
    auto const little = shop.refused("train text --data little.txt " + steps + "--out none", 4);
    BOOST_TEST(has(little, "tokens when packed, but a block has 64"), little);
    BOOST_TEST(!has(little, "the autoencoder:"), little);
    BOOST_TEST(!shop.there("none/autoencoder/model.safetensors"));
    auto const held = shop.refused("train text --data two --holdout 2:1 " + steps + "--out none --fresh", 4);
    BOOST_TEST(has(held, "--holdout 2:1: in the text held out for evaluation: the text has only"), held);
    BOOST_TEST(!has(held, "the autoencoder:"), held);
}

BOOST_AUTO_TEST_CASE(minutes_are_shared_and_a_real_text_is_measured) {
    workshop const shop;
    std::string lines;
    for (int i = 0; i < 2000; ++i)
        lines += "{\"text\": \"line " + std::to_string(i * i) +
                 " of a text that is long enough to be held out, every "
                 "tenth of its documents\"}\n";
    static_cast<void>(shop.folder.with("my.jsonl", lines));
    auto const made = shop.good("train text --data my.jsonl --minutes 0.04 --config tiny --threads 1 --out run");
    for (auto const* const part : {"\n minutes 0.04 ", "autoencoder-minutes 0.01", "holdout 10:9 ",
                                   "every tenth document", "random-patches 0.15 ", "--holdout 10:9", "BrierLM"})
        BOOST_TEST(has(unaligned(made.err), part), part << " is missing in " << made.err);
    auto const state = nlohmann::json::parse(shop.folder.content(
        "run/autoencoder/checkpoints/" +
        fs::directory_iterator(shop.folder.path("run/autoencoder/checkpoints"))->path().filename().string() +
        "/state.json"));
    BOOST_TEST(state["recipe"]["schedule"] == "cosine");
    BOOST_TEST(std::stod(state["recipe"]["seconds"].get<std::string>()) == 0.6, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_renamed_text_is_the_same_choice) {
    workshop const shop;
    shop.good("cp text.txt same.txt; (cat text.txt; echo 1) >other.txt");
    std::string const run = "train text --config tiny-ar --batch 2 --block 64 --threads 1 --out run --steps ";
    shop.good(run + "3 --data text.txt");
    auto const same = shop.good(run + "3 --data ./same.txt");
    BOOST_TEST(has(same.err, "--data ./same.txt is the same text as before, which was text.txt"), same.err);
    BOOST_TEST(has(same.err, "the model is trained"), same.err);
    // A changed text is noticed even for finished stages.
    auto const other = shop.refused(run + "3 --data other.txt");
    BOOST_TEST(has(other, "started with other choices"), other);
    BOOST_TEST(has(other, "text.txt"), other);
    BOOST_TEST(has(shop.good(run + "5 --override --data same.txt").err, "resumes after step 3"));
}

BOOST_AUTO_TEST_CASE(a_refused_command_changes_nothing_of_a_run) {
    workshop const shop;
    std::string const sizes_of_ar = "--config tiny-ar --batch 2 --block 64 --threads 1 ";
    std::string const run = "train text --data text.txt " + sizes_of_ar + "--out run ";
    std::string const stage = "train ar --tokenizer run/tokenizer.model --data text.txt " + sizes_of_ar + "--out ar ";
    shop.good(run + "--steps 3");
    shop.good(stage + "--steps 3");
    auto const files = [&] {
        std::string all;
        for (auto const* const name : {"run/text.tokens", "run/plan.json", "run/run.json", "run/options.toml",
                                       "ar/text.tokens", "ar/run.json", "ar/options.toml"})
            all += shop.folder.content(name);
        for (auto const* const name : {"run/text.tokens.new", "ar/text.tokens.new"}) BOOST_TEST(!shop.there(name));
        return all;
    };
    auto const before = files();
    shop.good("cp text.txt as_it_was.txt; echo 1 >>text.txt");
    BOOST_TEST(has(shop.refused(stage + "--steps 3"), "started with other settings"));
    auto const another = shop.refused(run + "--steps 3");
    BOOST_TEST(has(another, "found another one under the same name (1 documents, "), another);
    BOOST_TEST(has(another, "start over with --fresh, or choose another --out"), another);
    shop.good("echo 1 >text.txt");  // less than a block
    BOOST_TEST(has(shop.refused(run + "--steps 3 --fresh", 4), "the text has only"));
    BOOST_TEST(has(shop.refused(run + "--steps 3 --override --learning-rate 1e-3", 4), "the text has only"));
    BOOST_TEST((files() == before));
    shop.good("cp as_it_was.txt text.txt");
    auto const again = shop.good(run + "--steps 5 --override");
    BOOST_TEST(has(again.err, "resumes after step 3"), again.err);
    BOOST_TEST(!has(again.err, "tokenises the text"), again.err);
    BOOST_TEST((files() != before));
}

BOOST_AUTO_TEST_CASE(a_run_has_its_tokenizer_before_its_model) {
    workshop const shop;
    shop.good("mkdir run empty; echo {} >run/plan.json; "
              "train tokenizer --vocabulary 259 --data text.txt --out run/tokenizer.model");
    BOOST_TEST(shop.good("tokenize run --format ids --text AB").out == "65 66\n");
    auto const none = shop.refused("tokenize empty --text AB", 6);
    BOOST_TEST(has(none, "found none of empty/config.json, empty/tokenizer.model and empty/tokenizer.json"), none);
    shop.good("rm run/tokenizer.model");
    BOOST_TEST(has(shop.refused("tokenize run --text AB", 6), "found none of run/model/config.json"));
}

BOOST_AUTO_TEST_CASE(an_autoregressive_model_is_trained_in_the_same_way) {
    workshop const shop;
    std::string const softmax =
        "train text --data text.txt --config tiny-ar --batch 2 --block 64 --threads 1 --seed 3 --save-every 8 ";
    auto const made = shop.good(softmax + "--steps 24 --out run");
    for (auto const* const part : {"a softmax, without an autoencoder", "bytes: too little text or time",
                                   "the configuration's own", "wrote run/tokenizer.model: 259 tokens", "the model:",
                                   "wrote run/model", "to generate: generate run --prompt", "to plot:     plot run\n"})
        BOOST_TEST(has(made.err, part), part << " is missing in " << made.err);
    for (auto const* const part : {"autoencoder-", "kl-weight", "the autoencoder"})
        BOOST_TEST(!has(made.err, part), part << " is in " << made.err);
    BOOST_TEST(!shop.there("run/autoencoder"));
    shop.good(
        "mkdir two; train tokenizer --vocabulary 259 --data text.txt --out two/tokenizer.model; "
        "train ar --config tiny-ar --tokenizer two/tokenizer.model --data text.txt --batch 2 --block 64 --steps 24 "
        "--warmup 2 --schedule cosine --threads 1 --seed 3 --out two/model");
    shop.same_weights("run", "two", {"/model"});
    shop.good("generate --model run/model --prompt 'Once upon a time' --max-tokens 4");
    auto const plan = nlohmann::json::parse(shop.folder.content("run/plan.json"));
    BOOST_TEST(plan["plan"]["config"] == "tiny-ar");
    BOOST_TEST(plan["plan"]["schedule"] == "cosine");
    BOOST_TEST(!plan["plan"].contains("kl-weight"));
    BOOST_TEST(plan["done"] == (std::vector<std::string>{"model"}));

    // It resumes, prints its plan, and refuses changed choices as for a CALM.
    auto const parts = softmax + "--steps 24 --out parts";
    BOOST_TEST(shop.interrupted(softmax + "--steps 24", "parts", "model/checkpoints/step-*/*", "KILL").status == 137);
    BOOST_TEST(has(shop.good(parts).err, "resumes"));
    shop.same_weights("parts", "run", {"/model"});
    BOOST_TEST(has(shop.good(parts).err, "the model is trained"));
    auto const dry = shop.good(softmax + "--steps 24 --dry-run --out run");
    for (auto const* const part : {"vocabulary 259", "\nmodel\n", "FLOPs"})
        BOOST_TEST(has(unaligned(dry.out), part), part << " is missing in " << dry.out);
    BOOST_TEST(has(shop.refused(softmax + "--steps 24 --learning-rate 1e-3 --out run"), "started with other choices"));
    BOOST_TEST(has(shop.refused(softmax + "--steps 24 --kl-weight 0.1 --head-samples 3 --out other"), "2 problems"));
    BOOST_TEST(has(shop.refused("train text --data text.txt --config tiny --autoencoder-steps 2 --steps 24 --out run "
                                "--override"),
                   "--config: the models in run have tiny-ar, which --override does not change"));
    shop.good(softmax + "--steps 30 --override --out run");

    // Replacing a CALM.
    shop.good(few + "--out both");
    auto const fresh = shop.good(softmax + "--steps 24 --fresh --out both");
    BOOST_TEST(!shop.there("both/autoencoder"), fresh.err);
    shop.same_weights("both", "two", {"/model"});
}

BOOST_AUTO_TEST_CASE(symbols_files_of_options_and_other_directories) {
    workshop const shop;
    auto const markov = "train text --data markov:4000 " + sizes + "--autoencoder-steps 3 --steps 2 ";
    auto const made = shop.good(markov + "--out chain");
    BOOST_TEST(!has(made.err, "vocabulary  "), made.err);
    BOOST_TEST(has(made.err, "of the optimum"), made.err);
    BOOST_TEST(has(made.err, "generate chain --prompt AAAA"), made.err);
    BOOST_TEST(has(made.err, "evaluate chain --data markov:4000\n"), made.err);
    BOOST_TEST(!shop.there("chain/tokenizer.model"));
    BOOST_TEST(has(shop.refused(markov + "--vocabulary 300 --out other"), "--vocabulary: the symbols of markov:N"));
    shop.good("generate chain --prompt AAAA --max-tokens 4 --pool 2");

    static_cast<void>(shop.folder.with("text.toml", "data = [\"text.txt\"]\nthreads = 1\nseed = 3\n[text]\n"
                                                    "config = \"tiny\"\nsteps = 2\nautoencoder-steps = 2\nbatch = 2\n"
                                                    "autoencoder-batch = 64\nout = \"by-toml\"\nblock = 64\n"));
    static_cast<void>(shop.folder.with("text.json",
                                       "{\"text\": {\"data\": [\"text.txt\"], \"threads\": 1, \"seed\": 3, "
                                       "\"config\": \"tiny\", \"steps\": 2, \"autoencoder-steps\": 2, \"batch\": 2, "
                                       "\"autoencoder-batch\": 64, \"out\": \"by-json\", \"block\": 64}}"));
    shop.good("train text --config-file text.toml");
    shop.good("train text --config-file text.json");
    shop.same_weights("by-toml", "by-json");

    for (std::string const run : {"chain/model", "."})
        BOOST_TEST(has(shop.refused(few + "--out " + run), "already exists and holds no run to resume"), run);
    // The result is not a run of a single model.
    BOOST_TEST(has(shop.refused("train autoencoder --config tiny --tokenizer markov --data markov:400 --out chain"),
                   "already exists and holds no run"));
}
