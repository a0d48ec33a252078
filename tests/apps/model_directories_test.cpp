// All programs report equal errors for a model directory, whatever their task.

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace fs = std::filesystem;

namespace {

// A folder with a tokenizer and an autoregressive model trained for one step.
class workshop {
public:
    workshop() {
        good("train tokenizer --vocabulary 300 --data stories:4000 --out words; "
             "train ar --config tiny-ar --tokenizer words --data stories:4000 --batch 2 --block 32 --steps 1 --out lm");
    }
    ran good(std::string const& line) const {
        auto made = run_in(folder, line);
        BOOST_REQUIRE_MESSAGE(made.status == 0, line + ": " + made.err);
        return made;
    }
    void is_refused(std::string const& line, int status, std::string const& says) const {
        auto const made = run_in(folder, line);
        BOOST_TEST(made.status == status, line << ": " << made.err);
        BOOST_TEST(has(made.err, says), line << ": " << made.err);
    }
    // A copy of the model with one key of config.json set, or removed if the value is null.
    void copy_with(std::string const& name, std::string const& key, nlohmann::json const& value) const {
        fs::copy(folder.path("lm"), folder.path(name));
        auto json = nlohmann::json::parse(folder.content(name + "/config.json"));
        json[key] = value;
        if (value.is_null()) json.erase(key);
        std::ofstream(folder.path(name + "/config.json")) << json.dump();
    }
    temporary_folder folder;
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_program_reports_a_broken_directory) {
    workshop const shop;
    // A refused config.json, tried with each option that only some models take.
    shop.copy_with("quantised", "quantization_config", {{"quant_method", "gptq"}});
    for (std::string const line :
         {"generate --model quantised", "generate --model quantised --temperature 0",
          "generate --model quantised --temperature 0.8", "generate --model quantised --top-k 5",
          "generate --model quantised --sampler adaptive", "generate --model quantised --head-steps 4",
          "evaluate --model quantised --data stories:100 --temperature 0.8", "inspect quantised",
          "convert --model quantised --out no",
          "train ar --config tiny-ar --tokenizer words --data stories:4000 --steps 1 --init quantised --out no"})
        shop.is_refused(line, 5, "key 'quantization_config': expected null");

    shop.copy_with("extended", "num_hidden_layers", 9);
    for (std::string const line :
         {"generate --model extended", "evaluate --model extended --data stories:100", "inspect extended",
          "convert --model extended --out no",
          "train ar --config tiny-ar --tokenizer words --data stories:4000 --steps 1 --init extended --out no"})
        shop.is_refused(line, 5, " missing: 'model.layers.");

    shop.copy_with("published", "calm", nullptr);
    for (std::string const line : {"generate --model published", "evaluate --model published --data stories:1000"})
        BOOST_TEST(run_in(shop.folder, line).status == 0, line);
    shop.good("cp -r lm bare; rm bare/tokenizer.model published/tokenizer.model");
    for (std::string const line : {"generate --model ", "evaluate --data stories:100 --model "}) {
        shop.is_refused(line + "bare", 6, "bare/tokenizer.model: expected the model's tokenizer, found none: put that");
        shop.is_refused(line + "published", 6,
                        "put tokenizer.json, or tiktoken's file as tokenizer.model, into published");
    }

    shop.good("cp -r lm two; echo '{}' >two/model.safetensors.index.json");
    for (std::string const line :
         {"generate --model two --max-tokens 1", "inspect two", "convert --model two --out one"})
        BOOST_TEST(has(shop.good(line).err,
                       "two: reads the weights from model.safetensors; model.safetensors.index.json is not read"),
                   line);
    BOOST_TEST(!has(shop.good("inspect one").err, "not read"));
}

// transformers reads a converted model: tokenizer.json is next to the file that the programs read.
BOOST_AUTO_TEST_CASE(a_converted_autoregressive_model_has_a_tokenizer_json) {
    workshop const shop;
    BOOST_TEST(has(shop.good("convert lm --out both").err, "wrote tokenizer.json too: transformers reads both"));
    auto const ids = [&](std::string const& of) {
        return shop.good("tokenize --format ids --tokenizer " + of + " --text 'Mia found 12 of them.'").out;
    };
    BOOST_TEST(ids("both/tokenizer.json") == ids("both/tokenizer.model"));
    auto const settings = nlohmann::json::parse(shop.folder.content("both/tokenizer_config.json"));
    BOOST_TEST(settings.at("tokenizer_class") == "PreTrainedTokenizerFast");
    BOOST_TEST(!has(shop.good("convert both --out third").err, "tokenizer.json too"));
}

// As many paths as a shell pattern can expand to.
BOOST_AUTO_TEST_CASE(a_run_with_very_many_paths_is_read_and_resumed) {
    workshop const shop;
    std::string const name(200, 'x');
    fs::create_directories(shop.folder.path("r/" + name));
    for (int i = 0; i < 5000; ++i)
        std::ofstream(shop.folder.path("r/" + name + "/" + std::to_string(i) + ".txt")) << "a b c " << i << "\n";
    std::string const train = "train ar --config tiny-ar --tokenizer words --data r/" + name +
                              "/*.txt --batch 2 --block 32 --out many --steps ";
    shop.good(train + "1");
    shop.good("generate --model many --max-tokens 1");
    shop.good("inspect many");
    BOOST_TEST(has(shop.good(train + "1").err, "is finished"));
    BOOST_TEST(has(shop.good(train + "2").err, "resumes after step 1"));
}
