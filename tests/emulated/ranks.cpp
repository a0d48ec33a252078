// The programs as several ranks on a device, started with mpirun: bit-identical to one process.
#include <boost/test/unit_test.hpp>

#include <string>

#include "support/launchers.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using namespace calm::test;

BOOST_AUTO_TEST_CASE(ranks_on_a_device_equal_one_process) {
    if (!can_run_ranks()) return;
    temporary_folder const folder;
    auto const well = [&](std::string const& line) {
        auto const r = run_in(folder, "PATH='" CALM_DEVICE_PROGRAMS_DIR "':$PATH; " + line);
        BOOST_REQUIRE_MESSAGE(r.status == 0, line << ": " << r.err);
        return r;
    };
    auto const same = [&](std::string const& file, std::string const& other) {
        BOOST_REQUIRE(!folder.content(file).empty());
        BOOST_CHECK_MESSAGE(folder.content(file) == folder.content(other), file << " and " << other);
    };
    std::string const common =
        " --device emulated --threads 1 --seed 3 --config tiny --accumulation 2 --data text.txt ";
    std::string const ae = "train autoencoder --tokenizer tokenizer.model --batch 64 --steps 4" + common;
    std::string const calm = "train calm --autoencoder ae --batch 4 --block 32 --muon 1 --steps 4" + common;
    std::string const scores =
        "evaluate --model one --device emulated --threads 1 --data text.txt --block 32 --seed 2 ";
    std::string const texts =
        "generate --model one --device emulated --threads 1 --max-tokens 8 --jsonl prompts.jsonl --out ";

    well("seq 1 400 >text.txt; train tokenizer --vocabulary 270 --data text.txt --out tokenizer.model; "
         "for i in 1 2 3; do echo \"{\\\"id\\\": $i, \\\"prompt\\\": \\\"$i\\\"}\"; done >prompts.jsonl");
    well(ae + "--out ae");
    auto const said = well(mpirun(2) + ae + "--out ae2").err;
    BOOST_TEST(has(said, ", on emulated, 2 ranks that communicate through host memory"), said);
    same("ae/model.safetensors", "ae2/model.safetensors");
    well(calm + "--out one");
    well(mpirun(2) + calm + "--out two");
    same("one/model.safetensors", "two/model.safetensors");
    BOOST_TEST(well(mpirun(2) + scores).out == well(scores).out);
    well(texts + "one.jsonl");
    well(mpirun(2) + texts + "two.jsonl");
    same("one.jsonl", "two.jsonl");
}
