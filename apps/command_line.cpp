#include "command_line.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
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
#include "calm/text/documents.hpp"
#include "registry.hpp"
#include "suggest.hpp"

namespace calm::apps {

namespace {

enum class needed { no, yes };

// One command: options are declared with the place they go to, then read() fills the places. CLI11 keeps the options
// and prints the help; what is wrong is collected here, because it would stop at the first problem.
class command {
public:
    command(std::string name, std::string const& description) : app_(description, std::move(name)) {
        app_.get_formatter()->column_width(34);
    }

    void text(std::string const& option, std::string& to, std::string const& type, std::string const& help,
              needed need = needed::no) {
        add(option, type, help, need, [&to](std::string const& value) { to = value; });
    }
    template <class To, class Value = double>
    void number(std::string const& option, To& to, std::string const& type, std::string const& help, Value least,
                Value most = std::numeric_limits<Value>::max(), needed need = needed::no) {
        add(option, type, help, need, [this, &to, option, least, most](std::string const& text) {
            Value value{};
            auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (code == std::errc{} && end == text.data() + text.size() && value >= least && value <= most)
                to = value;
            else
                problem(option + ": expected " + range(least, most) + ", found '" + text + "'");
        });
    }
    // A value that some callable turns into a place's, throwing calm::error where it cannot.
    void parsed(std::string const& option, std::string const& type, std::string const& help,
                std::function<void(std::string const&)> take) {
        add(option, type, help, needed::no, std::move(take));
    }
    void list(std::string const& option, std::vector<std::string>& to, std::string const& type,
              std::string const& help) {
        add(option, type, help, needed::yes, [&to](std::string const& value) { to.push_back(value); })->expected(1, -1);
    }
    // A question to the options as a whole, asked after they are read.
    void check(std::function<void()> question) { checks_.push_back(std::move(question)); }
    void problem(std::string sentence) { problems_.push_back(std::move(sentence)); }
    void footer(std::string const& text) { app_.footer(text); }

    // False where --help was asked for and printed. Throws errc::usage with every problem.
    bool read(int argc, char const* const* argv) {
        std::vector<std::string> words = understood({argv, argv + argc});
        if (asks_for_help_) {
            std::fputs(app_.help().c_str(), stdout);
            return false;
        }
        std::reverse(words.begin(), words.end());  // as CLI11 takes them
        try {
            app_.parse(words);
        } catch (CLI::ParseError const& wrong) {
            problem(wrong.what());
        }
        for (auto const& one : options_) {
            auto const values = one.option->results();
            if (one.need == needed::yes && values.empty() && !stated_without_value(one.name))
                problem(one.name + " is needed: " + one.help);
            if (values.size() > 1 && one.option->get_items_expected_max() == 1)
                problem(one.name + " is given " + std::to_string(values.size()) + " times; give it once");
            for (auto const& value : values) guarded([&] { one.take(value); });
        }
        for (auto const& question : checks_) guarded(question);
        if (problems_.empty()) return true;
        std::string all = problems_.size() == 1 ? "" : std::to_string(problems_.size()) + " problems";
        for (auto const& one : problems_) all += (problems_.size() == 1 ? "" : "\n  - ") + one;
        throw error(errc::usage, all + "\n(" + app_.get_name() + " --help shows every option)");
    }

private:
    struct declared {
        std::string name;
        std::string help;
        needed need;
        CLI::Option* option;
        std::function<void(std::string const&)> take;
    };

    CLI::Option* add(std::string const& name, std::string const& type, std::string const& help, needed need,
                     std::function<void(std::string const&)> take) {
        auto* const option = app_.add_option(name, need == needed::yes ? help + " (needed)" : help)
                                 ->type_name(type)
                                 ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
        options_.push_back({name, help, need, option, std::move(take)});
        return option;
    }

    template <class Value> static std::string range(Value least, Value most) {
        std::string const kind = std::is_integral_v<Value> ? "a whole number" : "a number";
        bool const open =
            std::is_floating_point_v<Value> && least == std::numeric_limits<Value>::min();  // above 0, below most
        if (open)
            return kind + " above 0" +
                   (most < std::numeric_limits<Value>::max() ? " and below " + detail::six_digits(double(most)) : "");
        if (most < std::numeric_limits<Value>::max())
            return kind + " from " + detail::shortest(double(least)) + " to " + detail::shortest(double(most));
        return kind + " of at least " + detail::shortest(double(least));
    }

    void guarded(std::function<void()> const& f) {
        try {
            f();
        } catch (error const& wrong) {
            problem(wrong.what());
        }
    }

    [[nodiscard]] bool stated_without_value(std::string const& name) const {
        return std::find(without_value_.begin(), without_value_.end(), name) != without_value_.end();
    }

    // The words that CLI11 can take; the others are problems.
    std::vector<std::string> understood(std::vector<std::string> const& words) {
        std::vector<std::string> names{"--help"};
        for (auto const& one : options_) names.push_back(one.name);
        auto const is_option = [](std::string const& word) { return word.starts_with("--") && word.size() > 2; };
        std::vector<std::string> taken;
        for (std::size_t i = 0; i < words.size(); ++i) {
            auto const& word = words[i];
            if (word == "-h" || word == "--help") {
                asks_for_help_ = true;
                continue;
            }
            if (!is_option(word)) {
                problem("unexpected '" + word + "': values follow the name of their option");
                continue;
            }
            std::string const name = word.substr(0, word.find('='));
            std::vector<std::string> values;
            if (name.size() < word.size())
                values.push_back(word.substr(name.size() + 1));
            else
                while (i + 1 < words.size() && !is_option(words[i + 1]) && words[i + 1] != "-h")
                    values.push_back(words[++i]);
            auto const known =
                std::find_if(options_.begin(), options_.end(), [&](declared const& one) { return one.name == name; });
            if (known == options_.end()) {
                problem("there is no option " + name + did_you_mean(name, names));
            } else if (values.empty()) {
                without_value_.push_back(name);
                problem(name + " needs a value: " + known->help);
            } else if (values.size() > 1 && known->option->get_items_expected_max() == 1) {
                problem(name + ": expected one value, found " + listed(values) + "; put a text with spaces in quotes");
            } else {
                for (auto const& value : values) taken.insert(taken.end(), {name, value});
            }
        }
        return taken;
    }

    CLI::App app_;
    std::vector<declared> options_;
    std::vector<std::function<void()>> checks_;
    std::vector<std::string> problems_;
    std::vector<std::string> without_value_;
    bool asks_for_help_ = false;
};

constexpr char const* spec_help = "text: files (.txt, .jsonl, .json) or stories:N, about N tokens of generated stories";

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

void require_file(command& c, std::string const& option, std::string const& path, bool folder) {
    c.check([&c, &path, option, folder] {
        if (path.empty()) return;
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
        c.text("--tokenizer", o.tokenizer, "FILE", "vocabulary that train tokenizer wrote", needed::yes);
        require_file(c, "--tokenizer", o.tokenizer, false);
        add_data(c, o.data);
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
    add_threads(c, o.seed, o.threads);
    return c.read(argc - 1, argv + 1) ? std::optional(o) : std::nullopt;
}

std::optional<generate_options> read_generate(int argc, char const* const* argv) {
    generate_options o;
    command c("generate", "Writes on from a prompt: text on standard output, statistics on standard error.");
    c.text("--model", o.model, "DIR", "model that train calm wrote", needed::yes);
    require_file(c, "--model", o.model, true);
    c.text("--prompt", o.prompt, "TEXT", "how the text begins (empty)");
    c.parsed("--temperature", "T", "1, or 1/n (1/2): lower is surer", [&o](std::string const& text) {
        parse_temperature(text);
        o.temperature = text;
    });
    c.parsed("--sampler", "NAME", "rule for temperatures: batch (batch)", [&o](std::string const& name) {
        std::vector<std::string> const samplers{"batch"};
        if (name != samplers[0])
            throw error(errc::usage, "--sampler: there is no sampler '" + name + "'; there is: " + listed(samplers));
        o.sampler = name;
    });
    c.number<index_t, index_t>("--samples", o.samples, "N", "pool of the batch sampler (200)", 1);
    c.parsed("--padding", "SIDE", "where a prompt is filled up to whole patches: left, or right as published (left)",
             [&o](std::string const& side) {
                 if (side != "left" && side != "right")
                     throw error(errc::usage, "--padding: expected left or right, found '" + side + "'");
                 o.pad_left = side == "left";
             });
    c.number<index_t, index_t>("--max-tokens", o.max_tokens, "N", "tokens to write at most (200)", 1);
    add_threads(c, o.seed, o.threads);
    c.check([&] { batch_sampler::at(parse_temperature(o.temperature), o.samples); });
    return c.read(argc - 1, argv + 1) ? std::optional(o) : std::nullopt;
}

}  // namespace calm::apps
