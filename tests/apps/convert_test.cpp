// convert and inspect as a user runs them. They lie in CALM_PROGRAMS_DIR.

#include <boost/test/unit_test.hpp>

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm::test;

namespace {

struct ran {
    int status;
    std::string out;
    std::string err;
};

ran program(temporary_folder const& folder, std::string const& command) {
    auto const line = "cd '" + folder.path("") + "' && '" + CALM_PROGRAMS_DIR "/'" + command + " >out.txt 2>err.txt";
    int const status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, folder.content("out.txt"), folder.content("err.txt")};
}

std::string checkpoint(char const* name) {
    return "'" + (fixtures_folder() / "base" / "checkpoints" / name).string() + "'";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_is_converted_and_inspected, *with_fixtures) {
    temporary_folder const folder;
    auto const made =
        program(folder, "convert --model " + checkpoint("calm_bin") + " --out half --dtype bf16 --shard-size 100000");
    BOOST_TEST(made.status == 0, made.err);
    BOOST_TEST(has(made.out, "several safetensors files (4), 97 tensors of BF16, 162,688 parameters, 325.4 kB"));
    auto const told = program(folder, "inspect half");
    BOOST_TEST(told.status == 0, told.err);
    BOOST_TEST(has(told.out, "several safetensors files (4), 97 tensors of BF16; config.json says bfloat16"));
    auto const again = program(folder, "convert --model half --out half");
    BOOST_TEST(again.status == 2);
    BOOST_TEST(has(again.err, "half is there already"));
    std::filesystem::remove(folder.path("half/model-00002-of-00004.safetensors"));
    auto const broken = program(folder, "inspect --model half");
    BOOST_TEST(broken.status == 5);
    BOOST_TEST(has(broken.err, "file 'model-00002-of-00004.safetensors': expected it beside the index, found none"));
}
