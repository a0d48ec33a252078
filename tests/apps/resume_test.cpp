// Runs that stop and resume, as users do it.

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "run/training_run.hpp"

#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

class workshop {
public:
    workshop() {
        auto const made =
            shell("seq 1 4000 >text.txt; train tokenizer --vocabulary 300 --data text.txt --out tokenizer.model");
        BOOST_REQUIRE_MESSAGE(made.status == 0, made.err);
    }

    ran shell(std::string const& line) const { return run_in(folder_, line); }
    // Trains in the background into the folder `out`, sends a signal once a file of it exists, and waits; the status is
    // the training's.
    ran interrupted(std::string const& arguments, std::string const& out, std::string const& file,
                    std::string const& signal) const {
        return calm::test::interrupted_run(folder_, "train " + arguments + "--out " + out, out,
                                           "[ -e " + out + "/" + file + " ]", signal);
    }
    temporary_folder const& folder() const { return folder_; }

private:
    temporary_folder folder_;
};

// One file has no held-out part, so there are no evaluations and the runs are short.
std::string const sizes = "--config tiny --threads 1 --seed 3 ";
std::string const autoencoder = "autoencoder " + sizes + "--tokenizer tokenizer.model --batch 256 --data ";
std::string const calm_of_file = "calm " + sizes + "--autoencoder whole --data text.txt --batch 2 --block 64 ";

// The steps and losses of a log, without the values that differ between runs.
std::vector<std::string> lines_of(std::string const& log) {
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

}  // namespace

BOOST_AUTO_TEST_CASE(a_killed_and_interrupted_run_equals_an_uninterrupted_one) {
    workshop const shop;
    auto const same = [&](std::string const& a, std::string const& b, std::string const& last) {
        for (auto const& file : {std::string("model.safetensors"), "checkpoints/" + last + "/training.safetensors"})
            BOOST_TEST((shop.folder().content(a + "/" + file) == shop.folder().content(b + "/" + file)), file);
        BOOST_TEST(lines_of(shop.folder().content(a + "/metrics.jsonl")) ==
                       lines_of(shop.folder().content(b + "/metrics.jsonl")),
                   boost::test_tools::per_element());
    };
    auto const often = autoencoder + "stories:4000 --steps 16 --save-every 4 --evaluate-every 6 --keep 3 ";
    auto const whole = shop.shell("train " + often + "--out whole");
    BOOST_REQUIRE_MESSAGE(whole.status == 0, whole.err);
    auto const killed = shop.interrupted(often, "parts", "checkpoints/step-00000004", "KILL");
    BOOST_TEST(killed.status == 137);
    // If the newest checkpoint is damaged, the run resumes from the previous one, or from the start.
    auto const damaged =
        shop.shell("ls -d parts/checkpoints/step-???????? | sed -n '2,$ { $ p }' | while read newest; do "
                   "truncate -s -1 $newest/training.safetensors; done; train " +
                   often + "--out parts");
    BOOST_REQUIRE_MESSAGE(damaged.status == 0, damaged.err);
    BOOST_TEST(has(damaged.err, "resumes after step "));
    same("parts", "whole", "step-00000016");
    BOOST_TEST(std::filesystem::exists(shop.folder().path("parts/best/model.safetensors")));

    auto const longer = calm_of_file + "--steps 12 --save-every 4 --muon 2 --dtype bf16 --rounding stochastic ";
    auto const straight = shop.shell("train " + longer + "--out calm");
    BOOST_REQUIRE_MESSAGE(straight.status == 0, straight.err);
    auto const stopped = shop.interrupted(longer, "'two parts'", "checkpoints/step-00000004", "TERM");
    BOOST_TEST(stopped.status == 143);
    auto const at = stopped.err.find("to resume: ");
    BOOST_REQUIRE(at != std::string::npos);
    auto const command = stopped.err.substr(at + 11, stopped.err.find('\n', at) - at - 11);
    BOOST_TEST(has(command, "--out 'two parts'"));
    auto const finished = shop.shell(command);
    BOOST_REQUIRE_MESSAGE(finished.status == 0, finished.err);
    same("two parts", "calm", "step-00000012");

    // A finished run, changed settings (listed in a table), and a concurrent process, which is refused.
    auto const again = shop.shell(command);
    BOOST_TEST(again.status == 0);
    BOOST_TEST(has(again.err, "the run in two parts is finished: 12 steps"));
    auto const differs = shop.shell(
        "train " + calm_of_file + "--steps 12 --save-every 4 --muon 2 --learning-rate 5e-4 --head-beta 1.5 --out calm");
    BOOST_TEST(differs.status == 2);
    BOOST_TEST(
        has(differs.err,
            "  option         was         now\n  dtype          bf16        -\n  head-beta      1           1.5\n"
            "  learning-rate  0.002       5e-04\n  rounding       stochastic  -\n"),
        differs.err);
    // From Muon to AdamW and back; their optimizer states differ.
    for (auto const* const others : {"--steps 14 --muon 0 ", "--steps 16 --muon 2 "}) {
        auto const changed = shop.shell("train " + calm_of_file + others + "--override --out calm");
        BOOST_TEST(changed.status == 0);
        BOOST_TEST(has(changed.err, "  muon  "), changed.err);
    }
    auto const held = shop.shell("flock calm/run.lock train " + longer + "--out calm");
    BOOST_TEST(held.status == 10);
    BOOST_TEST(has(held.err, "another process is training in it"));
}

BOOST_AUTO_TEST_CASE(a_terminal_or_a_pipe_that_goes_away_ends_a_run_with_a_checkpoint) {
    workshop const shop;
    auto const endless = autoencoder + "text.txt --minutes 9 --save-every 1 ";
    for (auto const& [signal, status] : {std::pair{"HUP", 129}, std::pair{"PIPE", 141}}) {
        auto const out = std::string("by") + signal;
        auto const r = shop.interrupted(endless, out, "model.safetensors", signal);
        BOOST_TEST(r.status == status);
        BOOST_TEST(has(r.err, "stopped by a signal; wrote " + out), r.err);
        BOOST_TEST(has(r.err, "to resume: "), r.err);
    }
    // With nohup the run should continue.
    auto const kept =
        shop.shell("trap '' HUP; " + calm::test::interrupted("train " + autoencoder + "text.txt --steps 30 --out kept",
                                                             "[ -e kept/metrics.jsonl ]", "HUP"));
    BOOST_TEST(kept.status == 0, kept.err);
}

BOOST_AUTO_TEST_CASE(a_text_truncated_while_in_use_is_an_error) {
    workshop const shop;
    auto const r =
        shop.shell("seq 1 60000 | sed 's/.*/{\"text\": \"some & lines of text\"}/' >long.jsonl; train " + autoencoder +
                   "long.jsonl --minutes 9 --out run & until [ -s run/metrics.jsonl ]; "
                   "do sleep 0.1; done; truncate -s 0 run/text.tokens; wait $!");
    BOOST_TEST(r.status == 10);
    BOOST_TEST(has(r.err, "run/text.tokens"), r.err);
    BOOST_TEST(has(r.err, ": can no longer be read: the file was shortened while it was in use"), r.err);
}

BOOST_AUTO_TEST_CASE(other_settings_and_a_fresh_start) {
    workshop const shop;
    auto const often = autoencoder + "text.txt --save-every 2 --out run ";
    BOOST_REQUIRE(shop.shell("train " + often + "--steps 4").status == 0);
    auto const changed = shop.shell("train " + often + "--steps 6 --learning-rate 1e-3 --override");
    BOOST_REQUIRE_MESSAGE(changed.status == 0, changed.err);
    BOOST_TEST(has(changed.err, "with other settings from here on"));
    BOOST_TEST(has(changed.err, "resumes after step 4"));
    // The new settings now belong to the run.
    BOOST_TEST(has(shop.shell("train " + often + "--steps 6 --learning-rate 1e-3").err, "is finished: 6 steps"));
    BOOST_TEST(shop.shell("train " + often + "--steps 6").status == 2);
    auto const fresh = shop.shell("train " + often + "--steps 2 --fresh");
    BOOST_TEST(fresh.status == 0);
    BOOST_TEST(!has(fresh.err, "resumes"));
    BOOST_TEST(!std::filesystem::exists(shop.folder().path("run/checkpoints/step-00000004")));
    BOOST_TEST(!has(shop.folder().content("run/metrics.jsonl"), "\"step\":3,"));
}

BOOST_AUTO_TEST_CASE(bad_steps_are_left_out_and_counted) {
    workshop const shop;
    auto const high = autoencoder + "text.txt --learning-rate 10 --warmup 0 --steps 60 --out high ";
    auto const r = shop.shell("train " + high + "--skip-nonfinite 2");
    BOOST_TEST(r.status == 8);
    BOOST_TEST(has(r.err, "skipped a step, number 2 of this run"));
    BOOST_TEST(has(r.err, "--skip-nonfinite N"));
    BOOST_TEST(has(shop.folder().content("high/metrics.jsonl"), "\"skipped\":2,\"why\":\""));
}

BOOST_AUTO_TEST_CASE(the_resume_command_is_quoted_for_a_shell) {
    using calm::apps::resume_command;
    BOOST_TEST(resume_command({"./train", "calm", "--fresh", "--out=a b", "--data", "it's", "--override",
                               "--learning-rate", "1e-3", ""}) ==
               "./train calm '--out=a b' --data 'it'\\''s' --learning-rate 1e-3 ''");
}
