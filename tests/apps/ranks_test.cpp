// train, evaluate and generate as several ranks, started with mpirun, or as torchrun and srun do.

#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/launchers.hpp"
#include "support/programs.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"
#include "support/skipped.hpp"

using calm::test::by_tcp;
using calm::test::can_run_ranks;
using calm::test::has;
using calm::test::mpirun;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

std::string const autoencoder =
    "train autoencoder --config tiny --threads 1 --seed 3 --tokenizer tokenizer.model --batch 256 "
    "--data stories:4000 --save-every 4 --evaluate-every 6 --accumulation ";
std::string const calm_of =
    "train calm --config tiny --threads 1 --seed 3 --data text.txt --batch 4 --block 64 --accumulation 4 "
    "--save-every 3 ";

// Steps long enough to be interrupted.
std::string const long_autoencoder =
    "train autoencoder --config tiny --threads 1 --seed 3 --tokenizer tokenizer.model --batch " +
    std::string(calm::test::is_sanitized ? "128" : "2048") +
    " --data stories:4000 --save-every 4 --evaluate-every 10 --accumulation 4 --steps 60 ";

// The number that follows some words.
std::optional<int> number_behind(std::string const& text, std::string const& words) {
    auto const at = text.find(words);
    if (at == std::string::npos) return std::nullopt;
    return std::atoi(text.c_str() + at + words.size());
}

class workshop {
public:
    workshop() {
        auto const made =
            shell("seq 1 4000 >text.txt; train tokenizer --vocabulary 300 --data text.txt --out tokenizer.model");
        BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);
    }
    ran shell(std::string const& line) const { return run_in(folder_, line); }
    // Runs a line that must succeed.
    ran well(std::string const& line) const {
        auto r = shell(line);
        BOOST_TEST(r.status == 0, line << ": " << r.err);
        return r;
    }
    // Starts a job of ranks, runs `then` once a file exists, and waits; the status is the job's. `then` may use "$(rank
    // N)" for the process of rank N.
    ran disturbed(std::string const& job, std::string const& file, std::string const& then) const {
        return disturbed_when("[ -e " + file + " ]", job, then);
    }
    // Waits for a shell condition instead of a file.
    ran disturbed_when(std::string const& condition, std::string const& job, std::string const& then) const {
        return shell("rank() { for p in $(pgrep -x train); do [ \"$(readlink /proc/$p/cwd)\" != \"$(pwd -P)\" ] || "
                     "! tr '\\0' '\\n' </proc/$p/environ | grep -qx OMPI_COMM_WORLD_RANK=$1 || echo $p; done; }; " +
                     job + " & job=$!; until " + condition + " || ! kill -0 $job 2>/dev/null; do sleep 0.1; done; " +
                     then +
                     "; began=$(date +%s); wait $job; status=$?; echo $(($(date +%s) - began)) >took; (exit $status)");
    }
    temporary_folder const& folder() const { return folder_; }

    // Compares the checkpoint and log of two runs.
    void same(std::string const& a, std::string const& b, std::string const& last) const {
        for (auto const& file : {std::string("model.safetensors"), "checkpoints/" + last + "/training.safetensors",
                                 std::string("config.json")})
            BOOST_TEST((folder_.content(a + "/" + file) == folder_.content(b + "/" + file)), a << " " << file);
        BOOST_TEST(told(a) == told(b), boost::test_tools::per_element());
    }

private:
    // The lines of a log, without the values that differ between runs.
    std::vector<std::string> told(std::string const& run) const {
        auto const log = folder_.content(run + "/metrics.jsonl");
        std::vector<std::string> lines;
        for (std::size_t at = 0; at < log.size(); at = log.find('\n', at) + 1) {
            auto const line = log.substr(at, log.find('\n', at) - at);
            auto const seconds = line.find("\"seconds\":");
            auto const loss = line.find("\"loss\":");
            lines.push_back(seconds == std::string::npos
                                ? line
                                : line.substr(0, seconds) + line.substr(loss, line.find("\"learning_rate\"") - loss));
        }
        return lines;
    }
    temporary_folder folder_;
};

}  // namespace

// By the launcher's environment variables; --help is enough to check them.
BOOST_AUTO_TEST_CASE(processes_that_would_repeat_the_work_are_refused) {
    temporary_folder const folder;
    auto const check = [&](std::string const& launcher, std::string const& program, std::string const& says) {
        auto const r = run_in(folder, "env " + launcher + " " + program + " --help");
        BOOST_TEST(r.status == (says.empty() ? 0 : 9), launcher << " " << program << ": " << r.err);
        BOOST_TEST(has(r.err, says), launcher << " " << program << ": " << r.err);
    };
    std::string const torchrun = "RANK=0 WORLD_SIZE=2", srun = "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1";
    check(torchrun, "train",
          "expected in MASTER_ADDR a name or an address of the machine of rank 0, for rank 0 of 2; found none");
    check(srun, "train calm", "for rank 1 of 2; found none");
    check("RANK=2 WORLD_SIZE=2 MASTER_ADDR=localhost", "evaluate",
          "expected in RANK a number from 0 to 1, as the launcher of several ranks sets it, found '2'");
    check("MASTER_PORT=many MASTER_ADDR=localhost " + srun, "generate",
          "expected in MASTER_PORT a number from 1 to 65534, as the launcher of several ranks sets it, found 'many'");
    // Every rank refuses a port that only root may open; else the others would wait for rank 0.
    int first_open = 1024;
    std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_open;
    std::string const nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups ";
    if (first_open > 80 && run_in(folder, nobody + "train --version").status == 0)
        for (std::string const rank : {"0", "1"})
            check("MASTER_PORT=80 MASTER_ADDR=localhost WORLD_SIZE=2 RANK=" + rank, nobody + "train",
                  "expected in MASTER_PORT a port that this user may open, " + std::to_string(first_open) +
                      " or higher, found 80");
    // An invalid number of processes does not mean one process.
    for (std::string const wrong : {"1e6", "-1", "0", "0x2", "NaN", "2 ", "1000000"})
        for (std::string const variable : {"RANK=0 WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"})
            for (std::string const program : {"train", "sweep"})
                check(variable + "='" + wrong + "'", program,
                      "expected in " + variable.substr(variable.rfind(' ') + 1) +
                          " a number from 1 to 100000, as the launcher of several ranks sets it, found '" + wrong +
                          "'");
    check("RANK=0 WORLD_SIZE=50000 MASTER_ADDR=localhost", "train", "expected in WORLD_SIZE a number from 2 to 10000");
    check("RANK=1 WORLD_SIZE=1", "train", "expected in RANK a number from 0 to 0");
    check("RANK=first WORLD_SIZE=2", "sweep", "expected in RANK a number from 0 to 1");
    check("SLURM_JOB_ID=x MASTER_ADDR=localhost " + srun, "train", "expected in SLURM_JOB_ID a number from 0 to ");
    // Ranks reachable by others need a secret, or explicit permission to go without.
    auto const nobody_s = "env -u HOME -u XDG_CONFIG_HOME MASTER_ADDR=192.0.2.1 " + torchrun;
    check(nobody_s, "train", "expected a secret for the ranks (CALM_RANKS_SECRET or CALM_RANKS_SECRET_FILE)");
    check("CALM_RANKS_INSECURE=1 " + nobody_s, "train", "expected an address of this machine, where rank 0 meets");
    check("MASTER_ADDR=no.such.host.invalid " + torchrun, "train", "expected in MASTER_ADDR a name or an address");
    if (calm::apps::has_mpi())
        check("ASAN_OPTIONS=detect_leaks=0 OMPI_COMM_WORLD_SIZE=2", "evaluate",
              "as the launcher says, found this process alone");
    for (auto const& launcher : {torchrun, srun, std::string("OMPI_COMM_WORLD_SIZE=2"),
                                 std::string("PMI_RANK=0 PMI_SIZE=2"), "PMIX_RANK=0 " + srun})
        check(launcher, "sweep", "expected one process, found one of several");
    // One process, or an allocation for several that started only one.
    for (std::string const program : {"train", "evaluate", "generate", "sweep"})
        for (std::string const launcher : {"RANK=0 WORLD_SIZE=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=1",
                                           "SLURM_NTASKS=2 SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"})
            check(launcher, program, "");
    if (calm::test::no_ranks_reason().empty()) {
        auto const r = run_in(folder, mpirun(2) + "sweep --help");
        BOOST_TEST(r.status == 9, r.err);
        BOOST_TEST(has(r.err, "only train, evaluate and generate run as several ranks"), r.err);
    }
}

BOOST_AUTO_TEST_CASE(ranks_train_the_model_of_one_process) {
    if (!can_run_ranks()) return;
    workshop const shop;
    auto const well = [&](std::string const& line) { return shop.well(line).err; };
    well(autoencoder + "4 --steps 8 --out one");
    auto const said = well(mpirun(2) + autoencoder + "4 --steps 8 --out two");
    shop.same("two", "one", "step-00000008");
    // Only one rank prints.
    BOOST_TEST(said.find("wrote two") == said.rfind("wrote two"), said);
    BOOST_TEST(has(said, "wrote two"), said);

    well(calm_of + "--steps 6 --autoencoder one --out whole");
    well(mpirun(2) + calm_of + "--steps 3 --autoencoder one --out parts");
    well(mpirun(4) + calm_of + "--steps 6 --autoencoder one --out parts");
    shop.same("parts", "whole", "step-00000006");

    // Without --accumulation each rank has one micro-batch per step, and the run keeps that number.
    std::string const plan =
        "train text --data stories:20000 --autoencoder-steps 3 --threads 1 --vocabulary 300 --out text ";
    well(mpirun(2) + plan + "--steps 3");
    BOOST_TEST(
        has(shop.folder().content("text/model/checkpoints/step-00000003/state.json"), "\"accumulation\": \"2\""));
    BOOST_TEST(has(well(plan + "--steps 3"), "the model is trained"));
    auto const more = shop.shell(mpirun(4) + plan + "--steps 4 --override");
    BOOST_TEST(more.status == 2);
    BOOST_TEST(has(more.err, "expected 1 or 2 ranks for the run in text/model, found 4: start as many"), more.err);
    well(plan + "--steps 4 --override");
}

// Evaluations during and after training, the scores of evaluate, and the texts of generate.
BOOST_AUTO_TEST_CASE(ranks_evaluate_and_generate_as_one_process_does) {
    if (!can_run_ranks()) return;
    workshop const shop;
    auto const well = [&](std::string const& line) { return shop.well(line); };
    // Enough training for texts and scores to differ; less under the sanitizers.
    bool const brief = calm::test::is_sanitized;
    std::string const stage = " --threads 1 --seed 3 --data stories:20000 --accumulation 2 ";
    std::string const model =
        stage + "--batch 4 --block 64 " + (brief ? "--steps 4 --evaluate-every 2 " : "--steps 30 --evaluate-every 15 ");
    well("train autoencoder --config tiny --tokenizer tokenizer.model --learning-rate 0.003 --out ae" + stage +
         (brief ? "--batch 64 --steps 4" : "--batch 1024 --steps 80"));
    for (auto const& [name, of] :
         {std::pair<std::string, std::string>{"lm", "train calm --config tiny --autoencoder ae"},
          {"ar", "train ar --config tiny-ar --tokenizer tokenizer.model"}}) {
        well(of + model + "--out " + name);
        well(mpirun(2) + of + model + "--out " + name + "-by-2");
        shop.same(name + "-by-2", name, brief ? "step-00000004" : "step-00000030");
        BOOST_TEST(has(shop.folder().content(name + "/metrics.jsonl"), "\"heldout_loss\":"));
    }
    for (std::string const of : {"--model ae", "--model lm --model ar", "--model lm --positions 100 --samples 3"}) {
        auto const line = "evaluate --data stories:4000 --threads 1 --block 64 --seed 2 " + of;
        auto const one = well(line);
        BOOST_TEST(has(one.out, "\"token_accuracy\":"));
        auto const two = well(mpirun(2) + line);
        BOOST_TEST(two.out == one.out);
        BOOST_TEST(has(two.err, one.err), one.err);
        if (has(of, "--samples")) BOOST_TEST(well(mpirun(3) + line).out == one.out);
    }

    well("seq -f 'line %g' 1 37 >prompts");
    well("for i in 1 2 3 4 5 6 7; do echo '{\"id\": '$i', \"prompt\": \"'$i'\"}'; done >lines; echo no >>lines");
    for (std::string const of : {"--model lm --temperature 1/2", "--model ar --temperature 0.8"}) {
        auto const line = "generate --threads 1 --seed 2 --max-tokens 12 " + of;
        for (auto const& [prompts, R] : {std::pair<std::string, int>{" --prompts prompts", 3}, {" --prompt once", 2}}) {
            auto const one = well(line + prompts);
            BOOST_TEST(one.out.size() > 10U);
            // mpirun gives each rank a terminal, for which output is escaped, hence the cat.
            BOOST_TEST(well(mpirun(R) + "sh -c '" + line + prompts + " | cat'").out == one.out);
        }
        // Also with a character of the first text as the string that ends it.
        std::string end;
        for (bool const stops : {false, true}) {
            auto const stop = stops ? " --stop '" + end + "'" : "";
            auto const one = shop.shell(line + stop + " --jsonl - <lines");
            auto const two = shop.shell(mpirun(2) + line + stop + " --jsonl - <lines");
            BOOST_TEST(one.status == 4);
            BOOST_TEST(two.status == 4);
            BOOST_TEST(two.out == one.out);
            BOOST_TEST(has(one.out, R"("stop_reason":")" + end + "\"") == stops, one.out);
            std::string const text = nlohmann::json::parse(one.out.substr(0, one.out.find('\n'))).at("text");
            auto const found = text.find_first_of("0123456789abcdefghijklmnopqrstuvwxyz ");
            if (!stops) BOOST_REQUIRE_MESSAGE(found != std::string::npos, text);
            if (!stops) end = text.substr(found, 1);
        }
    }
}

BOOST_AUTO_TEST_CASE(ranks_that_evaluate_another_text_say_so) {
    if (!can_run_ranks()) return;
    workshop const shop;
    auto const made = shop.shell(autoencoder + "1 --steps 2 --out ae; seq 2 4001 >text0.txt; seq 1 4000 >text1.txt");
    BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);
    auto const other = shop.shell(mpirun(2) + "sh -c 'exec evaluate --model ae --data text$OMPI_COMM_WORLD_RANK.txt'");
    BOOST_TEST(other.status == 9);
    BOOST_TEST(has(other.err, "evaluate: --data: rank 1 has 'text1.txt', rank 0 has 'text0.txt': give all ranks"),
               other.err);
    BOOST_TEST(other.out.empty());
    // Another text with an equal name.
    auto const renamed = shop.shell(
        mpirun(2) + "sh -c 'mkdir -p own$OMPI_COMM_WORLD_RANK; cd own$OMPI_COMM_WORLD_RANK; cp "
                    "../text$OMPI_COMM_WORLD_RANK.txt text.txt; exec evaluate --model ../ae --data text.txt'");
    BOOST_TEST(renamed.status == 9);
    BOOST_TEST(has(renamed.err, "evaluate: checksum of the text: rank 1 has '"), renamed.err);
    // An error of rank 0 ends the other ranks too.
    auto const none = shop.shell(mpirun(2) + "evaluate --model nothing --data text.txt");
    BOOST_TEST(none.status == 2, none.err);
    BOOST_TEST(none.err.find("there is no nothing") == none.err.rfind("there is no nothing"), none.err);
}

// Started like torchrun and srun --mpi=none, through the environment. No MPI is needed.
BOOST_AUTO_TEST_CASE(ranks_connected_by_tcp_equal_one_process) {
    workshop const shop;
    auto const well = [&](std::string const& line) { return shop.well(line); };
    well(autoencoder + "2 --steps 8 --out one");
    auto const said = well(by_tcp("RANK", "WORLD_SIZE", 2) + autoencoder + "2 --steps 8 --out two");
    BOOST_TEST(has(said.err, "2 ranks; rank 0 sent"), said.err);
    shop.same("two", "one", "step-00000008");
    std::string const evaluate = "evaluate --model one --data text.txt";
    // The port follows from the job id, and srun's address is the first machine's.
    auto const job = "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 SLURM_JOB_ID=" + std::to_string(::getpid());
    auto const by_srun = "env -u MASTER_ADDR -u MASTER_PORT " + job + " ";
    BOOST_TEST(well(by_tcp("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 3) + by_srun + evaluate).out == well(evaluate).out);
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_over_tcp) {
    workshop const shop;
    for (int const victim : {0, 1}) {
        auto const other = std::to_string(1 - victim), out = "run" + std::to_string(victim);
        auto const killed =
            shop.shell("export " + calm::test::ranks_secret + " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                       std::to_string(calm::test::free_port()) + "; RANK=" + std::to_string(victim) + " " +
                       autoencoder + "4 --steps 100000 --out " + out + " & victim=$!; RANK=" + other + " " +
                       autoencoder + "4 --steps 100000 --out " + out + " & other=$!; until [ -e " + out +
                       "/checkpoints/step-00000004 ] || ! kill -0 $victim 2>/dev/null; do sleep 0.1; done; "
                       "kill -9 $victim; wait $other");
        BOOST_TEST(killed.status == 9, killed.err);
        auto const last = number_behind(killed.err, "rank " + std::to_string(victim) + " has ended after step ");
        BOOST_TEST_REQUIRE(last.has_value(), killed.err);
        BOOST_TEST(*last >= 4);
    }
    auto const few = shop.shell(by_tcp("RANK", "WORLD_SIZE", 2) + autoencoder + "1 --steps 8 --out none");
    BOOST_TEST(few.status == 2);
    BOOST_TEST(has(few.err, "expected a step of 2 times 1, 2, 4, ... micro-batches for 2 ranks, found 1"), few.err);
}

// Kills ranks in turn at moments spread over the run, then resumes with another number of ranks. The environment
// variable RANK_KILLS sets the number of kills (default 2, under the sanitizers 1); kill number i uses seed i.
BOOST_AUTO_TEST_CASE(a_killed_rank_ends_all_and_the_run_resumes_bit_for_bit) {
    if (!can_run_ranks()) return;
    workshop const shop;
    constexpr int steps = 60, save_every = 4;
    auto const whole = shop.shell(long_autoencoder + "--out whole");
    BOOST_REQUIRE_MESSAGE(whole.status == 0, whole.err);
    auto const* const asked = std::getenv("RANK_KILLS");
    int const kills = asked != nullptr ? std::atoi(asked) : calm::test::is_sanitized ? 1 : 2;
    for (int i = 0; i < kills; ++i) {
        std::mt19937 random(static_cast<unsigned>(i));
        auto const below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
        int const victim = i % 2;
        // The kills divide the run evenly, without its first and last steps.
        int const part = (steps - 5 * save_every) * i / kills;
        int const moment = save_every + part + below((steps - 5 * save_every) / kills + 1);
        int const later = below(300);
        int const R = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 2;
        auto const out = "parts" + std::to_string(i);
        auto const killed = shop.disturbed_when(
            "ls " + out + "/checkpoints 2>/dev/null | awk -F- '$2 + 0 >= " + std::to_string(moment) +
                " { found = 1 } END { exit !found }'",
            mpirun(2) + long_autoencoder + "--out " + out,
            "sleep 0." + std::to_string(1000 + later).substr(1) + "; kill -9 $(rank " + std::to_string(victim) + ")");
        BOOST_TEST_CONTEXT("kill " << i << " (seed " << i << "): rank " << victim << ", " << later
                                   << " ms after a checkpoint of step " << moment << " or later; resumes with " << R
                                   << " ranks") {
            BOOST_TEST(killed.status == 137, killed.err);
            auto const last =
                number_behind(killed.err, "no answer comes from rank " + std::to_string(victim) + " after step ");
            BOOST_TEST_REQUIRE(last.has_value(), killed.err);
            auto const again = shop.shell((R > 1 ? mpirun(R) : "") + long_autoencoder + "--out " + out);
            BOOST_TEST(again.status == 0, again.err);
            auto const from = number_behind(again.err, "resumes after step ");
            BOOST_TEST_REQUIRE(from.has_value(), again.err);
            BOOST_TEST((*from <= *last && *last <= *from + save_every), *from << " and " << *last);
            shop.same(out, "whole", "step-00000060");
            BOOST_TEST_MESSAGE("kill " << i << ": rank " << victim << " after step " << *last << ", resumed after step "
                                       << *from << " with " << R << " ranks");
        }
        shop.shell("rm -r " + out);
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_hangs_is_named_and_ends_all_in_time) {
    if (!can_run_ranks()) return;
    workshop const shop;
    for (int const victim : {0, 1}) {
        auto const out = "hung" + std::to_string(victim);
        auto const hung =
            shop.disturbed(mpirun(2) + autoencoder + "4 --steps 100000 --timeout 2 --out " + out,
                           out + "/checkpoints/step-00000004", "kill -STOP $(rank " + std::to_string(victim) + ")");
        BOOST_TEST(hung.status == 9);
        BOOST_TEST(std::stoi(shop.folder().content("took")) <= 60);  // 2 on an idle machine
        BOOST_TEST(has(hung.err, "rank " + std::to_string(victim) + " gave no answer for 2 s after step "), hung.err);
    }
}

BOOST_AUTO_TEST_CASE(a_signal_to_one_rank_ends_all_with_a_checkpoint) {
    if (!can_run_ranks()) return;
    workshop const shop;
    auto const ended = shop.disturbed(mpirun(2) + autoencoder + "4 --steps 100000 --out run",
                                      "run/checkpoints/step-00000004", "kill -TERM $(rank 1)");
    BOOST_TEST(ended.status == 143, ended.err);
    BOOST_TEST(has(ended.err, "stopped by a signal; wrote run"), ended.err);
}

BOOST_AUTO_TEST_CASE(different_options_or_files_of_one_rank_end_all) {
    if (!can_run_ranks()) return;
    workshop const shop;
    auto const other = shop.shell(mpirun(2) + "sh -c 'exec " + autoencoder +
                                  "4 --steps 8 --out run --learning-rate 0.001$OMPI_COMM_WORLD_RANK'");
    BOOST_TEST(other.status == 9);
    BOOST_TEST(has(other.err, "train: --learning-rate: rank 1 has '0.0011', rank 0 has '0.0010': give all ranks"),
               other.err);

    auto const few = shop.shell(mpirun(2) + autoencoder + "1 --steps 8 --out run");
    BOOST_TEST(few.status == 2);
    BOOST_TEST(has(few.err, "expected a step of 2 times 1, 2, 4, ... micro-batches for 2 ranks, found 1"), few.err);

    auto const wrong = shop.shell(mpirun(2) + "train autoencoder --config none");
    BOOST_TEST(wrong.status == 2);
    BOOST_TEST(has(wrong.err, "train autoencoder"), wrong.err);
    BOOST_TEST(!has(wrong.err, "rank 1: "), wrong.err);
}

// Differences in any option but --threads, in models with equal names, and in the command itself. No MPI is needed.
BOOST_AUTO_TEST_CASE(ranks_with_different_options_do_nothing) {
    workshop const shop;
    std::string const train = "train ar --config tiny-ar --tokenizer tokenizer.model --data text.txt --batch 2 --block "
                              "32 --threads 1 --steps ";
    auto const made = shop.shell(autoencoder + "1 --steps 2 --out ae; " + train +
                                 "2 --out lm; mkdir own0; cp -r lm own0; mkdir own1; cp tokenizer.model "
                                 "text.txt own1; cd own1; " +
                                 train + "3 --out lm");
    BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);
    auto const check = [&](std::string const& line, std::string const& says) {
        auto const r = shop.shell(by_tcp("RANK", "WORLD_SIZE", 2) + "sh -c 'exec " + line + "'");
        BOOST_TEST(r.status == 9, line << ": " << r.err);
        BOOST_TEST(has(r.err, says), line << ": " << r.err);
        BOOST_TEST(has(r.err, ": give all ranks the same command, variables and files"), line << ": " << r.err);
        BOOST_TEST(!has(r.err, ": rank 1: "), line << ": " << r.err);
        BOOST_TEST(r.out.empty(), line);
    };
    auto const differs = [&](std::string const& line, std::string const& option, std::string const& rank_0,
                             std::string const& rank_1) {
        check(line + " " + option + " $([ $RANK = 0 ] && echo " + rank_0 + " || echo " + rank_1 + ")",
              option + ": rank 1 has '" + rank_1 + "', rank 0 has '" + rank_0 + "'");
    };
    std::string const evaluate = "evaluate --model lm --data text.txt", generate = "generate --model lm";
    differs(evaluate, "--temperature", "1", "1/2");
    differs(evaluate, "--samples", "4", "8");
    differs(generate, "--seed", "1", "2");
    differs(generate, "--max-tokens", "20", "10");
    differs(generate, "--prompt", "a", "b");
    for (std::string const option : {"--save-every", "--evaluate-every", "--skip-nonfinite", "--keep"})
        differs(train + "8 --out none", option, "3", "5");
    check(evaluate + " --model $([ $RANK = 0 ] && echo lm || echo ae)", "--model: rank 1 has 'lm, ae', rank 0 has "
                                                                        "'lm, lm'");
    check(train + "8 --out none $([ $RANK = 0 ] || echo --dry-run)",
          "--dry-run: rank 1 has 'true', rank 0 has 'false'");
    check("env CALM_DATA=text.txt $([ $RANK = 0 ] && echo evaluate || echo generate) --model lm", "");
    BOOST_TEST(shop.shell("[ -e none ]").status != 0);
    // A model of the same name and sizes, with other weights.
    for (std::string const program : {"evaluate --data ../text.txt", "generate"})
        check("sh -c \"cd own$RANK; exec " + program + " --model lm\"", "weights of lm: rank 1 has ");
    auto const threads = shop.shell(by_tcp("RANK", "WORLD_SIZE", 2) + "sh -c 'exec " + evaluate +
                                    " --positions 20 --threads $((RANK + 1))'");
    BOOST_TEST(threads.status == 0, threads.err);
}

// Invalid options are reported once, whichever rank is faster.
BOOST_AUTO_TEST_CASE(rank_0_reports_unreadable_files) {
    workshop const shop;
    for (std::string const line : {"train autoencoder --config none", "evaluate --samples 0", "train nothing"}) {
        auto const r = shop.shell(by_tcp("RANK", "WORLD_SIZE", 3) + line);
        BOOST_TEST(r.status == 2, line << ": " << r.err);
        BOOST_TEST(!has(r.err, "rank 1: "), line << ": " << r.err);
        BOOST_TEST(!has(r.err, "rank 2: "), line << ": " << r.err);
    }
    auto const one = shop.shell(by_tcp("RANK", "WORLD_SIZE", 3) +
                                "sh -c 'exec evaluate --model . --data text.txt --samples $((10 - 5 * RANK))'");
    BOOST_TEST(one.status == 2, one.err);
    BOOST_TEST(has(one.err, "evaluate: rank 2: --samples: expected"), one.err);
}

BOOST_AUTO_TEST_CASE(ranks_without_a_shared_folder_say_so) {
    workshop const shop;
    auto const apart = shop.shell(by_tcp("RANK", "WORLD_SIZE", 2) +
                                  "sh -c 'mkdir own$RANK; cd own$RANK; exec train text --data stories:20000 --steps 2 "
                                  "--autoencoder-steps 2 --threads 1 --out run'");
    BOOST_TEST(apart.status == 9, apart.err);
    BOOST_TEST(
        has(apart.err,
            "train: rank 1: --out: expected run/plan.json as rank 0 has it, found none; all ranks need the same --out"),
        apart.err);
}
