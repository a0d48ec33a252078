#pragma once
// Parses command lines, environment variables and files of options. All problems are reported at once as one
// errc::usage. The functions return nothing after --help, --version, --print-config or --completion, which print to
// standard output.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "command/options.hpp"

namespace calm::apps {

struct train_autoencoder_command : train_options {};
struct train_calm_command : train_options {};
struct train_ar_command : train_options {};
using train_command =
    std::variant<text_options, tokenizer_options, train_autoencoder_command, train_calm_command, train_ar_command>;

std::optional<train_command> read_train(int argc, char const* const* argv);
// For the options of any other program.
template <class Options> std::optional<Options> read_options(int argc, char const* const* argv);

// Table names in a file of options: tokenizer, autoencoder, calm, ar, evaluate and so on.
std::vector<std::string> names_of_all_commands();
// With dashes and possibly repeated; without flag-only options.
std::vector<std::string> options_of_all_programs();

}  // namespace calm::apps
