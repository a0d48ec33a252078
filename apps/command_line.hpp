#pragma once
// Command lines to options. All problems of a command line are reported at once, as one errc::usage; --help is printed
// to standard output and leaves nothing to do.

#include <optional>
#include <variant>

#include "options.hpp"

namespace calm::apps {

struct train_autoencoder_command : train_options {};
struct train_calm_command : train_options {};
using train_command = std::variant<tokenizer_options, train_autoencoder_command, train_calm_command>;

std::optional<train_command> read_train(int argc, char const* const* argv);
std::optional<evaluate_options> read_evaluate(int argc, char const* const* argv);
std::optional<sweep_options> read_sweep(int argc, char const* const* argv);
std::optional<generate_options> read_generate(int argc, char const* const* argv);

}  // namespace calm::apps
