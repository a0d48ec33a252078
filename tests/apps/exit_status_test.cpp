// One way to each exit status that can be provoked without training for long. 1 is a fault of ours, 7 (memory), 9
// (collectives) and 11 (a GPU) need another machine; 8 and 130 are in programs_test.cpp.

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

// A shell's line with the programs in its PATH, in a folder with a tokenizer and an autoencoder of a step.
class workshop {
public:
    workshop() {
        BOOST_REQUIRE(run("train tokenizer --vocabulary 300 --data stories:4000 --out words").status == 0);
        auto const ae =
            run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 --steps 1 "
                "--out ae");
        BOOST_REQUIRE_MESSAGE(ae.status == 0, ae.err);
    }
    ran run(std::string const& line) const { return run_in(folder, line); }
    temporary_folder folder;
};

workshop const& shop() {
    static workshop const one;
    return one;
}

int status_of(std::string const& line) {
    auto const r = shop().run(line);
    BOOST_TEST_MESSAGE(line << ": " << r.err);
    if (r.status != 0) BOOST_TEST(!r.err.empty(), line);
    return r.status;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_status_has_its_cause) {
    BOOST_TEST(status_of("train --help") == 0);
    BOOST_TEST(status_of("generate --modle ae") == 2);
    BOOST_TEST(status_of("generate --model ae --prompt a") == 3);  // it writes nothing by itself
    static_cast<void>(shop().folder.with("bad.jsonl", "{\"text\": 1}\n"));
    BOOST_TEST(status_of("train tokenizer --vocabulary 300 --data bad.jsonl --out no") == 4);
    BOOST_TEST(status_of("evaluate --model . --data stories:100") == 5);
    static_cast<void>(shop().folder.with("no.model", "this is no vocabulary\n"));
    BOOST_TEST(status_of("train autoencoder --config tiny --tokenizer no.model --data stories:100 --out no") == 6);
    BOOST_TEST(status_of("train tokenizer --vocabulary 300 --data stories:4000 --out no.model/words") == 10);
    BOOST_TEST(status_of("train autoencoder --config tiny --tokenizer words --data stories:4000 --steps 1 --dry-run "
                         "--out no >/dev/full") == 10);
    BOOST_TEST(status_of("inspect ae >/dev/full") == 10);
    for (std::string const program :
         {"train", "train calm", "generate", "evaluate", "sweep", "plot", "convert", "inspect"})
        for (std::string const option : {" --help", " --version", " --completion bash"})
            BOOST_TEST(status_of(program + option + " >/dev/full") == 10, program + option);
    BOOST_TEST(status_of("generate --model ae --print-config >/dev/full") == 10);
    BOOST_TEST(status_of("generate --help >&-") == 10);
}

BOOST_AUTO_TEST_CASE(a_dry_run_writes_nothing) {
    auto const dry = shop().run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 256 "
                                "--steps 1000 --dry-run --out planned");
    BOOST_REQUIRE_MESSAGE(dry.status == 0, dry.err);
    for (auto const* const part : {"parameters", "documents of", "tokens held out", "1,000, of 256 tokens", "FLOPs",
                                   "a token", "saved activations", "scratch", "disk", "are free"})
        BOOST_TEST(has(dry.out, part), part << " is missing in " << dry.out);
    BOOST_TEST(!std::filesystem::exists(shop().folder.path("planned")));
    auto const calm = shop().run("train calm --config tiny --autoencoder ae --data stories:4000 --batch 2 --block 64 "
                                 "--minutes 3 --dry-run --out planned");
    BOOST_REQUIRE_MESSAGE(calm.status == 0, calm.err);
    BOOST_TEST(has(calm.out, "as many as 3:00 allow"));
    BOOST_TEST(!std::filesystem::exists(shop().folder.path("planned")));
    // Where a run is, it is left as it is.
    auto const there = shop().run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 "
                                  "--steps 9 --dry-run --out ae");
    BOOST_TEST(has(there.out, "ae, which holds a run to go on with"));
}

BOOST_AUTO_TEST_CASE(a_run_explains_itself) {
    auto const& folder = shop().folder;
    auto const run = folder.content("ae/run.json");
    for (auto const* const part : {"\"date\": \"20", "\"--batch\"", "\"version\": \"", "\"after_step\": 0"})
        BOOST_TEST(has(run, part), part << " is missing in " << run);
    auto const options = folder.content("ae/options.toml");
    for (auto const* const line : {"batch = 64  # flag\n", "rate = 0.002  # default\n", "config = \"tiny\"  # flag\n"})
        BOOST_TEST(has(options, line), line << " is missing in " << options);
    // The file reads back to what it says.
    auto const again = shop().run("train autoencoder --config-file ae/options.toml --print-config");
    BOOST_REQUIRE_MESSAGE(again.status == 0, again.err);
    BOOST_TEST(has(again.out, "rate = 0.002  # file\n"));
}

BOOST_AUTO_TEST_CASE(standard_input_holds_prompts_only_where_asked_for) {
    BOOST_TEST(status_of("generate --model ae --prompt - --prompts - </dev/null") == 2);
    BOOST_TEST(status_of("generate --model ae --jsonl - --prompt a </dev/null") == 2);
    BOOST_TEST(status_of("generate --model ae --out x </dev/null") == 2);
    BOOST_TEST(status_of("generate --model ae --jsonl no.jsonl") == 2);
}

BOOST_AUTO_TEST_CASE(a_run_is_plotted) {
    auto const plot = shop().run("plot ae --format svg");
    BOOST_REQUIRE_MESSAGE(plot.status == 0, plot.err);
    BOOST_TEST((has(plot.out, "plotted in ae/curve.svg") || has(plot.out, "install gnuplot")), plot.out);
    for (auto const* const file : {"ae/curve.gp", "ae/curve-steps.tsv", "ae/curve-evaluations.tsv"})
        BOOST_TEST(!shop().folder.content(file).empty(), file);
    BOOST_TEST(shop().folder.content("ae/curve-steps.tsv").starts_with("step\ttokens\tseconds\tloss\t"));
    BOOST_TEST(has(shop().folder.content("ae/curve-steps.tsv"), "\n1\t64\t"));
    BOOST_TEST(status_of("plot .") == 2);
}

BOOST_AUTO_TEST_CASE(every_program_completes_its_options) {
    for (std::string const& program : {std::string("train"), std::string("generate"), std::string("evaluate"),
                                       std::string("sweep"), std::string("plot")}) {
        BOOST_TEST(status_of(program + " --completion bash | bash -n") == 0);
        BOOST_TEST(status_of(program + " --completion fish") == 2);
    }
    BOOST_TEST(status_of("train calm --completion bash | bash -n") == 0);
    BOOST_TEST(status_of("train calm --completion=fish") == 2);
    // Every option of the help is in the script.
    BOOST_TEST(
        status_of("generate --completion bash >script; generate --help | grep -oE '^  --[a-z-]+' | while read o; "
                  "do grep -qe \"$o\" script || exit 9; done") == 0);
    BOOST_TEST(status_of("train --completion bash >script; train calm --help | grep -oE '^  --[a-z-]+' | while read o; "
                         "do grep -qe \"$o\" script || exit 9; done") == 0);
}

BOOST_AUTO_TEST_CASE(every_program_says_its_version) {
    for (std::string const& program :
         {std::string("train"), std::string("generate"), std::string("evaluate"), std::string("sweep"),
          std::string("plot"), std::string("convert"), std::string("inspect")}) {
        auto const said = shop().run(program + " --version");
        BOOST_TEST(said.status == 0, said.err);
        BOOST_TEST(said.out.starts_with(program + " of calm "), said.out);
        BOOST_TEST(said.err.empty(), said.err);
    }
}
