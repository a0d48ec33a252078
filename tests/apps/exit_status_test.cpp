// One cause for each exit status of apps/README.md, and what programs print besides their results.

#include <boost/test/unit_test.hpp>

#include "program.hpp"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "calm/base/error.hpp"
#include "support/programs.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

// Runs shell lines with the programs in PATH, in a folder with a tokenizer, an autoencoder and an autoregressive model,
// each trained for one step.
class workshop {
public:
    workshop() {
        BOOST_REQUIRE(run("train tokenizer --vocabulary 300 --data stories:4000 --out words").status == 0);
        auto const ae =
            run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 --steps 1 "
                "--out ae");
        BOOST_REQUIRE_MESSAGE(ae.status == 0, ae.err);
        auto const ar = run("train ar --config tiny-ar --tokenizer words --data stories:4000 --batch 2 --block 64 "
                            "--steps 1 --out ar");
        BOOST_REQUIRE_MESSAGE(ar.status == 0, ar.err);
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

// The numbers in the first column of the table under "exit status".
std::set<int> documented() {
    std::ifstream file(std::filesystem::path(CALM_FIXTURES_DIR) / "../../apps/README.md");
    std::set<int> all;
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("| ") || line.size() < 3 || std::isdigit(static_cast<unsigned char>(line[2])) == 0)
            continue;
        std::istringstream cell(line.substr(2, line.find(" |") - 2));
        for (std::string word; cell >> word;)
            if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) all.insert(std::stoi(word));
    }
    return all;
}

struct ending {
    int status;
    std::string line;
    std::string says;  // part of standard error
};

// Training in the background that receives a signal after its first logged step.
std::string interrupted_by(std::string const& signal) {
    return calm::test::interrupted(
        "train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 --minutes 9 --out " + signal,
        "[ -s " + signal + "/metrics.jsonl ]", signal);
}

std::vector<ending> const endings{
    {0, "inspect ae", ""},
    {2, "generate --modle ae", "--modle"},
    {2, "train autoencoder --config tinny --tokenizer words --data stories:100 --steps 1 --out no",
     "did you mean tiny?"},
    {2, "train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 255 --steps 1 --out no",
     "multiple"},
    {3, "generate --model ae --prompt a", "autoencoder"},  // an autoencoder alone generates nothing
    {4, "train tokenizer --vocabulary 300 --data bad.jsonl --out no", "bad.jsonl"},
    {4, "generate --model lm --jsonl bad.jsonl --max-tokens 4", "1 of 1 lines were bad"},
    {5, "evaluate --model . --data stories:100", "config.json"},
    {6, "train autoencoder --config tiny --tokenizer no.model --data stories:100 --out no", "no.model"},
    {7,
     "ulimit -v 1000000; train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 1000000 "
     "--steps 1 --out no",
     "memory"},
    {8,
     // The last weight is NaN.
     "cp -r ae nan; truncate -s -4 nan/model.safetensors; printf '\\000\\000\\300\\177' >>nan/model.safetensors; "
     "evaluate --model nan --data stories:1000",
     "finite"},
    {9,
     "env RANK=1 WORLD_SIZE=2 train autoencoder --config tiny --tokenizer words --data stories:100 --steps 1 --out no",
     "expected in MASTER_ADDR a name or an address of the machine of rank 0"},
    {9, "env OMPI_COMM_WORLD_SIZE=2 sweep --configs tiny --tokenizer words --data stories:100 --out no",
     "only train, evaluate and generate run as several ranks"},
    {9, "env RANK=0 WORLD_SIZE=2 serve lm --port 0", "only train, evaluate and generate run as several ranks"},
    {10, "train tokenizer --vocabulary 300 --data stories:4000 --out no.model/words", "no.model"},
    {10,
     "train autoencoder --config tiny --tokenizer words --data stories:4000 --steps 1 --dry-run --out no >/dev/full",
     "standard output"},
    {10, "inspect ae >/dev/full", "standard output"},
    {10,
     "ulimit -f 200; train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 --steps 1 "
     "--out big",
     "File too large"},
    {10,
     "flock ae/run.lock train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 --steps 1 "
     "--out ae",
     "another process"},
    {12,
     "mkdir -p bin; printf '#!/bin/sh\\necho first >&2; printf \"bad \\\\033[31m\\\\n\\n\" >&2; exit 3\\n' "
     ">bin/gnuplot; "
     "chmod +x bin/gnuplot; PATH=\"$PWD/bin:$PATH\" plot ae --format png",
     "plot: no plot: gnuplot failed on ae/curve.gp: bad \\x1b[31m\n"},
    {129, interrupted_by("HUP"), "to resume: "},
    {130, interrupted_by("INT"), "to resume: "},
    {141, interrupted_by("PIPE"), "to resume: "},
    {143, interrupted_by("TERM"), "to resume: "},
};

using calm::test::is_sanitized;

}  // namespace

BOOST_AUTO_TEST_CASE(every_exit_status_has_its_cause_and_message) {
    static_cast<void>(shop().folder.with("bad.jsonl", "{\"text\": 1}\n"));
    static_cast<void>(shop().folder.with("no.model", "this is no vocabulary\n"));
    BOOST_REQUIRE(
        status_of("train calm --config tiny --autoencoder ae --data stories:4000 --batch 2 --block 64 --steps 1 "
                  "--out lm") == 0);
    std::set<int> seen;
    for (auto const& [status, line, part] : endings) {
        seen.insert(status);
        if (status == 7 && is_sanitized) continue;
        auto const r = shop().run(line);
        BOOST_TEST(r.status == status, line << ": " << r.status << ", " << r.err);
        BOOST_TEST(has(r.err, part), line << ": " << r.err);
        BOOST_TEST((status > 128 || !std::filesystem::exists(shop().folder.path("no"))), line);
    }
    for (auto const* const run : {"HUP", "INT", "PIPE", "TERM"})
        BOOST_TEST(!shop().folder.content(std::string(run) + "/model.safetensors").empty());
    // Also by thrown errors, because no line above makes a GPU fail on every machine.
    using calm::errc;
    for (auto const code : {errc::usage, errc::config, errc::data, errc::model_file, errc::tokenizer, errc::memory,
                            errc::non_finite, errc::storage, errc::device}) {
        int const status = calm::apps::run_program("the test", [&]() -> int { throw calm::error(code, "a sentence"); });
        BOOST_TEST(status == static_cast<int>(code));
        seen.insert(status);
    }
    BOOST_TEST(calm::apps::run_program("the test", [&]() -> int { throw std::bad_alloc(); }) == 7);
    BOOST_TEST(seen == documented(), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nothing_is_written_if_an_output_has_no_name) {
    temporary_folder const folder;
    shop();
    std::string const data = " --data stories:4000 ", in = shop().folder.path("");
    for (auto const& line :
         {"train text" + data + "--minutes 1", "train tokenizer --vocabulary 300" + data,
          "train ar --config tiny-ar --tokenizer " + in + "/words" + data + "--steps 1",
          "train autoencoder --config tiny --tokenizer " + in + "/words" + data + "--steps 1",
          "train calm --config tiny --autoencoder " + in + "/ae" + data + "--steps 1",
          "sweep --configs tiny-ar --tokenizer " + in + "/words" + data + "--tokens 1000",
          "convert --model " + in + "/ae", "generate --model " + in + "/ae --jsonl " + in + "/words"})
        for (auto const* const out : {" --out \"\"", " --out="}) {
            auto const r = run_in(folder, line + out);
            BOOST_TEST(r.status == 2, line);
            BOOST_TEST(has(r.err, "--out: expected "), r.err);
            std::set<std::string> names;
            for (auto const& entry : std::filesystem::directory_iterator(folder.path("")))
                names.insert(entry.path().filename());
            BOOST_TEST(names == (std::set<std::string>{"err.txt", "out.txt"}), line);
        }
}

// With a closed stream, the next opened file gets the stream's number, and messages must not go into that file.
BOOST_AUTO_TEST_CASE(a_closed_stream_is_no_file_of_ours) {
    auto const& folder = shop().folder;
    auto const quiet = shop().run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 "
                                  "--steps 1 --out quiet 0<&- 1>&- 2>&-");
    BOOST_TEST(quiet.status == 0);
    BOOST_TEST(folder.content("quiet/run.lock").empty());
    auto const log = folder.content("quiet/metrics.jsonl");
    for (std::size_t at = 0; at < log.size(); at = log.find('\n', at) + 1) BOOST_TEST(log[at] == '{', log);
    BOOST_TEST((folder.content("quiet/model.safetensors") == folder.content("ae/model.safetensors")));
    BOOST_TEST(status_of("inspect ae 1>&-") == 10);
}

BOOST_AUTO_TEST_CASE(a_reader_that_is_gone_ends_a_program_quietly) {
    // The reader of the pipe has ended; with SIGPIPE ignored the program notices by its write error.
    for (std::string const before : {"", "trap '' PIPE; "}) {
        auto const r = shop().run(before + "rm -f pipe; mkfifo pipe; true <pipe & exec 3>pipe; wait $!; " +
                                  "inspect ae >&3; echo $? >status");
        BOOST_TEST(r.err == "");
        BOOST_TEST(shop().folder.content("status") == "141\n");
    }
}

BOOST_AUTO_TEST_CASE(output_that_cannot_be_written_ends_with_10) {
    for (std::string const program :
         {"train", "train calm", "generate", "evaluate", "sweep", "plot", "convert", "inspect"})
        for (std::string const option : {" --help", " --help-all", " --version", " --completion bash"})
            BOOST_TEST(status_of(program + option + " >/dev/full") == 10, program + option);
    BOOST_TEST(status_of("generate --model ae --print-config >/dev/full") == 10);
    BOOST_TEST(status_of("generate --help >&-") == 10);
}

BOOST_AUTO_TEST_CASE(a_dry_run_writes_nothing) {
    auto const dry = shop().run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 256 "
                                "--steps 1000 --dry-run --out planned");
    BOOST_REQUIRE_MESSAGE(dry.status == 0, dry.err);
    for (auto const* const part : {"parameters", "documents with", "tokens held out", "1,000, of 256 tokens", "FLOPs",
                                   "per token", "saved activations", "workspace", "disk", "are free"})
        BOOST_TEST(has(dry.out, part), part << " is missing in " << dry.out);
    BOOST_TEST(!std::filesystem::exists(shop().folder.path("planned")));
    auto const calm = shop().run("train calm --config tiny --autoencoder ae --data stories:4000 --batch 2 --block 64 "
                                 "--minutes 3 --dry-run --out planned");
    BOOST_REQUIRE_MESSAGE(calm.status == 0, calm.err);
    BOOST_TEST(has(calm.out, "as many as 3:00 allow"));
    BOOST_TEST(!std::filesystem::exists(shop().folder.path("planned")));
    // A dry run leaves an existing run unchanged.
    auto const there = shop().run("train autoencoder --config tiny --tokenizer words --data stories:4000 --batch 64 "
                                  "--steps 9 --dry-run --out ae");
    BOOST_TEST(has(there.out, "ae, which holds a run to resume"));
}

BOOST_AUTO_TEST_CASE(a_run_explains_itself) {
    auto const& folder = shop().folder;
    auto const run = folder.content("ae/run.json");
    for (auto const* const part : {"\"date\": \"20", "\"--batch\"", "\"version\": \"", "\"after_step\": 0"})
        BOOST_TEST(has(run, part), part << " is missing in " << run);
    auto const options = folder.content("ae/options.toml");
    for (auto const* const line :
         {"batch = 64  # flag\n", "learning-rate = 0.002  # default\n", "config = \"tiny\"  # flag\n"})
        BOOST_TEST(has(options, line), line << " is missing in " << options);
    // The file can be read back with the same values.
    auto const again = shop().run("train autoencoder --config-file ae/options.toml --print-config");
    BOOST_REQUIRE_MESSAGE(again.status == 0, again.err);
    BOOST_TEST(has(again.out, "learning-rate = 0.002  # file\n"));
}

// Unreadable sources are errors, and empty sources have no prompt.
BOOST_AUTO_TEST_CASE(a_source_of_prompts_has_some) {
    for (std::string const way : {"--prompt -", "--prompts -", "--jsonl -"}) {
        auto const line = "generate --model ar --max-tokens 1 " + way;
        for (auto const& [status, from, says] : {ending{10, " <&-", "standard input: cannot be read"},
                                                 {10, " <.", "standard input: cannot be read"},
                                                 {4, " </dev/null", "standard input: there is no prompt in it"}}) {
            auto const r = shop().run(line + from);
            BOOST_TEST(r.status == status, line << from);
            BOOST_TEST(has(r.err, says), r.err);
            BOOST_TEST(r.out.empty());
        }
    }
}

// The warning comes before the work.
BOOST_AUTO_TEST_CASE(the_cost_of_exact_sampling_is_reported_first) {
    auto const told = [&](std::string const& rule) {
        return shop().run("generate stories --prompts - </dev/null --sampler " + rule).err;
    };
    BOOST_TEST(has(told("exact --temperature 0.8"), "--sampler exact at T = 0.8: up to 100000 draws per patch"));
    BOOST_TEST(has(told("exact --temperature 1/1000"), "--sampler exact at T = 0.001: up to 100000 draws per patch"));
    for (auto const* const cheap :
         {"exact --temperature 1", "adaptive --temperature 1/2", "noise --temperature 0.8", "exact --temperature 1/0"})
        BOOST_TEST(!has(told(cheap), "draws per patch"), cheap);
}

BOOST_AUTO_TEST_CASE(standard_input_is_read_only_if_requested) {
    BOOST_TEST(status_of("generate --model ae --prompt - --prompts - </dev/null") == 2);
    BOOST_TEST(status_of("generate --model ae --jsonl - --prompt a </dev/null") == 2);
    BOOST_TEST(status_of("generate --model ae --out x </dev/null") == 2);
    BOOST_TEST(status_of("generate --model ae --jsonl no.jsonl") == 2);
}

BOOST_AUTO_TEST_CASE(a_run_is_plotted) {
    auto const plot = shop().run("plot ae");
    BOOST_REQUIRE_MESSAGE(plot.status == 0, plot.err);
    BOOST_TEST(has(plot.out, "plotted in ae/curve.svg\n"), plot.out);
    BOOST_TEST(has(shop().folder.content("ae/curve.svg"), "<title>Training of ae</title>"));
    BOOST_TEST(status_of("plot ae --format png") == 0, "the tests need gnuplot (Debian: gnuplot-nox)");
    BOOST_TEST(shop().folder.content("ae/curve.png").starts_with("\x89PNG\r\n"));
    auto const events = shop().run("plot ae --format tensorboard");
    BOOST_TEST(has(events.out, "wrote ae/events.out.tfevents.0.calm; to show it: tensorboard --logdir ae\n"),
               events.out);
    BOOST_TEST(events.err == "");
    BOOST_TEST(has(shop().folder.content("ae/events.out.tfevents.0.calm"), "heldout/token_accuracy"));
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
    // The script contains every option of the help.
    BOOST_TEST(
        status_of("generate --completion bash >script; generate --help-all | grep -oE '^  --[a-z-]+' | while read o; "
                  "do grep -qe \"$o\" script || exit 9; done") == 0);
    BOOST_TEST(
        status_of("train --completion bash >script; train calm --help-all | grep -oE '^  --[a-z-]+' | while read o; "
                  "do grep -qe \"$o\" script || exit 9; done") == 0);
}

BOOST_AUTO_TEST_CASE(every_program_prints_its_version) {
    for (std::string const& program :
         {std::string("train"), std::string("generate"), std::string("evaluate"), std::string("sweep"),
          std::string("plot"), std::string("convert"), std::string("inspect")}) {
        auto const said = shop().run(program + " --version");
        BOOST_TEST(said.status == 0, said.err);
        BOOST_TEST(said.out.starts_with(program + " of calm "), said.out);
        BOOST_TEST(said.err.empty(), said.err);
    }
}
