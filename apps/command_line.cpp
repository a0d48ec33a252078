#include "command_line.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/sample/temperature.hpp"
#include "calm/text/build_corpus.hpp"
#include "command.hpp"
#include "registry.hpp"
#include "text_data.hpp"
#include "writing.hpp"

namespace calm::apps {

namespace {

constexpr char const* spec_help =
    "text: files (.txt, .jsonl, .json), stories:N, about N tokens of generated stories, or markov:N, N symbols of a "
    "Markov chain";

void add_data(command& c, data_options& data) {
    c.list("--data", data.sources, "SPEC", spec_help);
    c.number<std::optional<std::uint64_t>, std::uint64_t>("--data-seed", data.data_seed, "S", "seed of generated text",
                                                          0);
    c.parsed("--holdout", "M:R", "keep every document whose number modulo M is R for evaluation",
             [&data](std::string const& text) { data.holdout = holdout::parse(text).text(); });
    c.check([&data, &c] {
        for (auto const& spec : data.sources) {
            try {
                static_cast<void>(document_source::parse(spec));
            } catch (error const& wrong) {
                c.problem(std::string("--data ") + wrong.what());
            }
        }
    });
}

void add_mode(command& c, data_options& data) {
    c.parsed("--mode", "NAME",
             "packing of documents: padded, every alignment and EOS; or published, as the published models (as the "
             "model, else padded)",
             [&data](std::string const& name) {
                 std::vector<std::string> const names{"padded", "published"};
                 if (std::find(names.begin(), names.end(), name) == names.end())
                     throw error(errc::usage, "--mode: expected one of " + listed(names) + ", found '" + name + "'" +
                                                  did_you_mean(name, names));
                 data.mode = name;
             });
    c.check([&data, &c] {
        if (!data.mode.empty() && is_markov(data.sources))
            c.problem("--mode: markov:N is an unbroken stream without BOS, EOS and PAD; leave it out");
    });
}

// How a patch is sampled: temperature, rule, and how many draws some rules take at most.
void add_sampler(command& c, std::string& temperature, std::string& rule, index_t& pool, std::string const& pool_option,
                 std::string const& colder) {
    c.parsed("--temperature", "T", "a decimal or 1/n (" + colder + "): lower is surer", [&](std::string const& text) {
        parse_temperature(text);
        temperature = text;
    });
    c.text(
        "--sampler", rule, "NAME",
        "adaptive: T = 1/n from few draws; batch: T = 1/n from a pool; exact: T from 0 to 1; noise: any T, by scaled "
        "noise (adaptive)");
    c.number<index_t, index_t>(pool_option, pool, "N", "draws a patch at most, of adaptive and batch (200)", 1,
                               sampler::limit);
    c.check([&] { sampler_of(rule, temperature, pool); });
}

void add_threads(command& c, std::uint64_t& seed, int& threads) {
    c.number<std::uint64_t, std::uint64_t>("--seed", seed, "S", "seed of everything random (1)", 0);
    c.number<int, int>("--threads", threads, "N", "threads; 0 takes the machine's (0)", 0, 4096);
}

void add_out(command& c, std::string& out, std::string const& what) {
    c.text("--out", out, "PATH", "where to write " + what + "; nothing may be there yet", needed::yes);
    c.check([&] {
        if (!out.empty() && std::filesystem::exists(std::filesystem::symlink_status(out)))
            c.problem("--out: " + out + " is there already; choose another path, or remove it");
    });
}

// A path must be there, but for a word that may stand instead.
void require_file(command& c, std::string const& option, std::string const& path, bool folder,
                  std::string const& word = "") {
    c.check([&c, &path, option, folder, word] {
        if (path.empty() || path == word) return;
        if (!std::filesystem::exists(path))
            c.problem(option + ": there is no " + path);
        else if (std::filesystem::is_directory(path) != folder)
            c.problem(option + ": expected a " + (folder ? "model directory" : "file") + ", " + path + " is none");
    });
}

std::string default_text(training_recipe const& r) {
    return "rate " + detail::six_digits(r.rate) + ", warm-up " + std::to_string(r.warmup) + ", steps " +
           std::to_string(r.steps);
}

// What holds where the command line says nothing.
std::string defaults_of(bool autoencoder) {
    std::string text = "Compiled configurations and their defaults:";
    for (auto const& one : compiled_configurations()) {
        auto const& [ae, calm] = one.defaults;
        text += "\n  " + one.name + ": ";
        text += autoencoder
                    ? "batch " + std::to_string(ae.batch_tokens) + ", " + default_text(ae) + ", kl-weight " +
                          detail::six_digits(ae.objective.kl_weight) + ", random-patches " +
                          detail::six_digits(ae.random_patches)
                    : "batch " + std::to_string(calm.sequences) + ", block " + std::to_string(calm.block_tokens) +
                          ", " + default_text(calm) + ", samples " + std::to_string(calm.objective.samples) +
                          ", targets " + std::to_string(calm.objective.targets) + ", beta " +
                          detail::six_digits(calm.objective.beta);
    }
    return text + "\nThe default steps hold where neither --steps nor --minutes is given.";
}

constexpr double above_zero = std::numeric_limits<double>::min();

void add_training(command& c, train_options& o) {
    c.text("--config", o.configuration, "NAME", "configuration, see docs/configurations.md", needed::yes);
    c.check([&] {
        if (!o.configuration.empty()) configuration_named(o.configuration);
    });
    c.number<std::optional<index_t>, index_t>("--steps", o.steps, "N", "stop after so many steps", 1);
    c.number<std::optional<double>, double>("--minutes", o.minutes, "X",
                                            "stop after so many minutes, if that is earlier", above_zero);
    c.number<std::optional<index_t>, index_t>("--accumulation", o.accumulation, "N",
                                              "micro-batches a step: less memory, the same result", 1);
    c.number<std::optional<double>, double>("--rate", o.rate, "X", "learning rate at its peak", above_zero);
    c.number<std::optional<index_t>, index_t>("--warmup", o.warmup, "N", "steps until the peak", 0);
    c.parsed("--schedule", "NAME", "after the warm-up: constant, or cosine (needs --steps)",
             [&o](std::string const& name) {
                 std::vector<std::string> const names{"constant", "cosine"};
                 if (name == names[0])
                     o.schedule = rate_schedule::constant;
                 else if (name == names[1])
                     o.schedule = rate_schedule::cosine;
                 else
                     throw error(errc::usage, "--schedule: expected one of " + listed(names) + ", found '" + name +
                                                  "'" + did_you_mean(name, names));
             });
    c.check([&] {
        if (o.schedule == rate_schedule::cosine && !o.steps)
            c.problem("--schedule cosine falls towards the last step: give --steps");
        if (o.schedule == rate_schedule::cosine && o.steps && o.warmup && *o.steps <= *o.warmup)
            c.problem("--schedule cosine: expected more --steps than --warmup");
    });
    c.number<std::optional<index_t>, index_t>("--evaluate-every", o.evaluate_every, "N",
                                              "steps between evaluations on held-out text (a tenth of the run)", 1);
    c.number<std::optional<index_t>, index_t>("--save-every", o.save_every, "N",
                                              "steps between savings (a tenth of the run)", 1);
    add_threads(c, o.seed, o.threads);
}

constexpr char const* train_usage = "Trains what a CALM is made of, one after the other.\n"
                                    "Usage: train tokenizer --vocabulary V --data SPEC... --out FILE\n"
                                    "       train autoencoder --config NAME --tokenizer FILE --data SPEC... --out DIR\n"
                                    "       train calm --config NAME --autoencoder DIR --data SPEC... --out DIR\n"
                                    "       train KIND --help shows every option of one.\n";

}  // namespace

std::optional<train_command> read_train(int argc, char const* const* argv) {
    std::vector<std::string> const kinds{"tokenizer", "autoencoder", "calm"};
    std::string const kind = argc > 1 ? argv[1] : "";
    if (kind == "--help" || kind == "-h") {
        std::fputs(train_usage, stdout);
        return std::nullopt;
    }
    auto const rest = [&](command& c) { return c.read(argc - 2, argv + 2); };
    if (kind == "tokenizer") {
        tokenizer_options o;
        command c("train tokenizer", "Learns a byte-level BPE vocabulary from text.");
        c.number<index_t, index_t>("--vocabulary", o.vocabulary, "V", "tokens, the 256 bytes and 3 specials among them",
                                   259, 1 << 24, needed::yes);
        add_data(c, o.data);
        add_out(c, o.out, "the vocabulary");
        return rest(c) ? std::optional<train_command>(o) : std::nullopt;
    }
    if (kind == "autoencoder") {
        train_autoencoder_command o;
        command c("train autoencoder", "Trains the autoencoder: K tokens to one vector and back.");
        c.text("--tokenizer", o.tokenizer, "FILE", "vocabulary that train tokenizer wrote, or markov for markov:N",
               needed::yes);
        c.check([&c, &o] {
            if (is_markov(o.data.sources) && !o.tokenizer.empty() && o.tokenizer != markov_vocabulary)
                c.problem("--tokenizer: the symbols of markov:N are its tokens; give --tokenizer markov");
        });
        require_file(c, "--tokenizer", o.tokenizer, false, markov_vocabulary);
        add_data(c, o.data);
        add_mode(c, o.data);
        add_out(c, o.out, "the model");
        c.number<std::optional<index_t>, index_t>("--batch", o.batch, "N", "tokens a step", 1);
        c.number<std::optional<double>, double>("--kl-weight", o.kl_weight, "X", "weight of the divergence in the loss",
                                                0);
        c.number<std::optional<double>, double>("--random-patches", o.random_patches, "X",
                                                "share of patches that are random tokens, 0.15 for real text", 0, 1);
        add_training(c, o);
        c.footer(defaults_of(true));
        return rest(c) ? std::optional<train_command>(o) : std::nullopt;
    }
    if (kind == "calm") {
        train_calm_command o;
        command c("train calm", "Trains the language model on a trained autoencoder.");
        c.text("--autoencoder", o.autoencoder, "DIR", "model that train autoencoder wrote", needed::yes);
        require_file(c, "--autoencoder", o.autoencoder, true);
        add_data(c, o.data);
        add_mode(c, o.data);
        add_out(c, o.out, "the model");
        c.number<std::optional<index_t>, index_t>("--batch", o.batch, "N", "sequences a step", 1);
        c.number<std::optional<index_t>, index_t>("--block", o.block, "N", "tokens a sequence", 1);
        c.number<std::optional<index_t>, index_t>("--samples", o.samples, "N", "model samples a position, in the loss",
                                                  2);
        c.number<std::optional<index_t>, index_t>("--targets", o.targets, "M", "target samples a position, in the loss",
                                                  1);
        c.number<std::optional<double>, double>("--beta", o.beta, "X", "exponent of the energy score", above_zero,
                                                std::nextafter(2.0, 0.0));
        add_training(c, o);
        c.footer(defaults_of(false));
        return rest(c) ? std::optional<train_command>(o) : std::nullopt;
    }
    throw error(errc::usage, kind.empty()
                                 ? "what is to be trained? Expected one of " + listed(kinds) + "\n" + train_usage
                                 : "expected one of " + listed(kinds) + ", found '" + kind + "'" +
                                       did_you_mean(kind, kinds) + "\n" + train_usage);
}

std::optional<evaluate_options> read_evaluate(int argc, char const* const* argv) {
    evaluate_options o;
    command c("evaluate",
              "Measures a model on held-out text: one JSON object on standard output, a table on standard error.");
    c.text("--model", o.model, "DIR", "model that train wrote", needed::yes);
    require_file(c, "--model", o.model, true);
    add_data(c, o.data);
    c.number<index_t, index_t>("--block", o.block, "N", "tokens a block; BrierLM depends on it (as in training)", 1);
    c.number<index_t, index_t>("--samples", o.samples, "N", "samples a position (8)", 2);
    c.number<index_t, index_t>("--positions", o.positions, "N", "score a random subset of so many positions (all)", 1);
    add_mode(c, o.data);
    add_sampler(c, o.temperature, o.sampler, o.pool, "--pool", "1");
    add_threads(c, o.seed, o.threads);
    return c.read(argc - 1, argv + 1) ? std::optional(o) : std::nullopt;
}

std::optional<sweep_options> read_sweep(int argc, char const* const* argv) {
    sweep_options o;
    command c(
        "sweep",
        "Trains and evaluates configurations on one source, each for the same time or on as many tokens: BrierLM and "
        "FLOPs against K.");
    c.list("--configs", o.configurations, "NAME", "configurations to compare");
    c.check([&] {
        for (auto const& name : o.configurations) configuration_named(name);
    });
    c.text("--tokenizer", o.tokenizer, "FILE", "vocabulary that train tokenizer wrote, or markov for markov:N",
           needed::yes);
    require_file(c, "--tokenizer", o.tokenizer, false, markov_vocabulary);
    add_data(c, o.data);
    add_out(c, o.out, "models, sweep.tsv, sweep.gp and sweep.png");
    c.number<std::optional<double>, double>("--autoencoder-minutes", o.autoencoder_minutes, "X",
                                            "minutes of training an autoencoder", above_zero);
    c.number<std::optional<double>, double>("--minutes", o.minutes, "X", "minutes of training a CALM", above_zero);
    c.number<std::optional<index_t>, index_t>("--autoencoder-tokens", o.autoencoder_tokens, "N",
                                              "tokens to train an autoencoder on", 1);
    c.number<std::optional<index_t>, index_t>("--tokens", o.tokens, "N", "tokens to train a CALM on", 1);
    c.check([&] {
        if (o.minutes.has_value() == o.tokens.has_value())
            c.problem("equal time or equal data? Give --minutes or --tokens, one of them");
        if (o.autoencoder_minutes.has_value() == o.autoencoder_tokens.has_value())
            c.problem("give --autoencoder-minutes or --autoencoder-tokens, one of them");
    });
    c.number<std::optional<index_t>, index_t>("--block", o.block, "N", "tokens a block, of all (256)", 1);
    c.number<std::optional<double>, double>("--rate", o.rate, "X", "learning rate of the CALMs at its peak",
                                            above_zero);
    c.number<std::optional<double>, double>("--kl-weight", o.kl_weight, "X", "weight of the divergence", 0);
    c.number<std::optional<double>, double>("--random-patches", o.random_patches, "X",
                                            "share of patches that are random tokens", 0, 1);
    c.number<index_t, index_t>("--samples", o.samples, "N", "samples a position in evaluation (8)", 2);
    c.number<index_t, index_t>("--positions", o.positions, "N", "score a random subset of so many positions (all)", 1);
    add_threads(c, o.seed, o.threads);
    return c.read(argc - 1, argv + 1) ? std::optional(o) : std::nullopt;
}

std::optional<generate_options> read_generate(int argc, char const* const* argv) {
    generate_options o;
    command c("generate", "Writes on from a prompt: text on standard output, statistics on standard error.");
    c.text("--model", o.model, "DIR", "model that train calm wrote", needed::yes);
    require_file(c, "--model", o.model, true);
    c.repeated("--prompt", o.prompts, "TEXT", "how a text begins (empty); again for a further text");
    c.text("--prompts", o.prompts_file, "FILE", "further prompts, a line each");
    require_file(c, "--prompts", o.prompts_file, false);
    add_sampler(c, o.temperature, o.sampler, o.samples, "--samples", "1/2");
    c.parsed("--padding", "SIDE", "where a prompt is filled up to whole patches: left, or right as published (left)",
             [&o](std::string const& side) {
                 if (side != "left" && side != "right")
                     throw error(errc::usage, "--padding: expected left or right, found '" + side + "'");
                 o.pad_left = side == "left";
             });
    c.number<index_t, index_t>("--max-tokens", o.max_tokens, "N", "tokens to write at most, of a text (200)", 1);
    c.number<index_t, index_t>("--at-once", o.at_once, "N", "texts written at the same time: memory and speed (16)", 1);
    add_threads(c, o.seed, o.threads);
    return c.read(argc - 1, argv + 1) ? std::optional(o) : std::nullopt;
}

}  // namespace calm::apps
