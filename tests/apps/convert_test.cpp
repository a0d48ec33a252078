// convert and inspect as users run them, from CALM_PROGRAMS_DIR.

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>

#include "support/calm_without_autoencoder.hpp"
#include "support/fixtures.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using namespace calm::test;

BOOST_AUTO_TEST_CASE(a_model_is_converted_and_inspected) {
    temporary_folder const folder;
    auto const made = run_in(folder, "convert --model '" + checkpoint("base", "calm_bin") +
                                         "' --out half --dtype bf16 --shard-size 100000");
    BOOST_TEST(made.status == 0, made.err);
    BOOST_TEST(has(made.out, "several safetensors files (4), 97 tensors of BF16, 162,688 parameters, 325.4 kB"));
    auto const told = run_in(folder, "inspect half");
    BOOST_TEST(told.status == 0, told.err);
    BOOST_TEST(has(told.out, "several safetensors files (4), 97 tensors of BF16; config.json says bfloat16"));
    auto const again = run_in(folder, "convert --model half --out half");
    BOOST_TEST(again.status == 2);
    BOOST_TEST(has(again.err, "half already exists"));
    std::filesystem::remove(folder.path("half/model-00002-of-00004.safetensors"));
    auto const broken = run_in(folder, "inspect --model half");
    BOOST_TEST(broken.status == 5);
    BOOST_TEST(has(broken.err, "file 'model-00002-of-00004.safetensors': expected it next to the index, found none"));
}

BOOST_AUTO_TEST_CASE(an_autoencoder_of_another_directory_is_joined) {
    temporary_folder const folder;
    write_without_autoencoder(checkpoint("base", "calm"), folder.path("calm"), "/home/someone/autoencoder");
    auto const alone = run_in(folder, "convert calm --out one");
    BOOST_TEST(alone.status == 5);
    BOOST_TEST(has(alone.err, "key 'ae_path': expected a directory inside the model's directory or next to it"));
    std::string const advice =
        "\nif the autoencoder is elsewhere, join the two: calm convert calm --autoencoder DIR --out NEW\n";
    BOOST_TEST(has(alone.err, advice), alone.err);
    write_without_autoencoder(checkpoint("base", "calm"), folder.path("near"), "../away");
    auto const away = run_in(folder, "inspect near");
    BOOST_TEST(away.status == 5);
    BOOST_TEST(has(away.err, "away/config.json: "), away.err);
    BOOST_TEST(has(away.err, "join the two: calm convert near --autoencoder DIR --out NEW\n"), away.err);
    auto const joined = run_in(folder, "convert calm --autoencoder '" + checkpoint("base", "autoencoder") +
                                           "' --out one && inspect one");
    BOOST_TEST(joined.status == 0, joined.err);
    BOOST_TEST(has(joined.out, "one safetensors file, 97 tensors of F32"));
    auto const missing = run_in(folder, "convert calm --autoencoder none --out two");
    BOOST_TEST(missing.status == 2);
    BOOST_TEST(has(missing.err, "--autoencoder: there is no none"));
}
