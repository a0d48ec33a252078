// calm: runs one of the other programs, named by the first argument.

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/error.hpp"
#include "command/command.hpp"
#include "command/command_line.hpp"
#include "command/completion.hpp"
#include "command/help.hpp"
#include "command/suggest.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

struct subcommand {
    std::string_view name;
    std::string_view what;
    int (*run)(int argc, char const* const* argv);
};

constexpr std::array subcommands{
    subcommand{"train", "train a model on your text, at once or stage by stage", train_main},
    subcommand{"generate", "continue a prompt", generate_main},
    subcommand{"serve", "answer completions over HTTP, with a page", serve_main},
    subcommand{"evaluate", "score a model on held-out text", evaluate_main},
    subcommand{"tokenize", "show the tokens of a text", tokenize_main},
    subcommand{"inspect", "describe a model", inspect_main},
    subcommand{"convert", "write a model in another precision or layout", convert_main},
    subcommand{"sweep", "train and compare several configurations", sweep_main},
    subcommand{"plot", "draw the training curve of a run", plot_main},
};

std::string usage(std::size_t columns = usual_columns) {
    constexpr std::size_t column = 12;  // of what a command does
    auto text = wrapped("Trains and runs continuous autoregressive language models (CALM).\n"
                        "Usage: calm COMMAND [OPTIONS]\n\n",
                        columns);
    for (auto const& one : subcommands) text += two_columns("  " + std::string(one.name), one.what, column, columns);
    return text +
           wrapped("\nBegin with:\n  calm generate --prompt \"Mia was a little girl\"\n  calm train my.txt --out mine\n"
                   "  calm generate mine --prompt \"Once upon\"\n\n"
                   "calm COMMAND --help describes a command, --help-all with all its options.\n"
                   "calm --completion bash prints a completion for bash.\n",
                   columns);
}

// The first argument that is not the name of a program; returns the exit status.
int answer(std::string const& word, std::span<char const* const> words) {
    if (word == "--help" || word == "--help-all" || word == "-h" || word == "help") {
        text_output().put(usage(columns_of_help()));
    } else if (word == "--version") {
        text_output().put(version_line("calm"));
    } else if (asks_for_completion(words)) {
        text_output().put(completion_of_calm());
    } else {
        std::vector<std::string> names;
        for (auto const& one : subcommands) names.emplace_back(one.name);
        throw calm::error(calm::errc::usage,
                          word.empty() ? "expected a command, found none"
                                       : "expected a command, found '" + word + "'" + did_you_mean(word, names),
                          lines_of(usage()));
    }
    return 0;
}

}  // namespace

int calm_main(int argc, char const* const* argv) {
    std::string const word = argc > 1 ? argv[1] : "";
    auto const named = [](std::string_view name) {
        return std::find_if(subcommands.begin(), subcommands.end(), [&](auto const& one) { return one.name == name; });
    };
    auto const* const found = named(word);
    // `calm help train` is `calm train --help`.
    if (auto const* const helped = argc == 3 && word == "help" ? named(argv[2]) : subcommands.end();
        helped != subcommands.end()) {
        run_as_subcommands(argv[0]);
        return helped->run(2, std::array{argv[2], "--help"}.data());
    }
    if (found == subcommands.end()) return run_program("calm", [&] { return answer(word, {argv, argv + argc}); });
    run_as_subcommands(argv[0]);
    return found->run(argc - 1, argv + 1);
}

}  // namespace calm::apps
