#pragma once
// What --vary and --seeds of sweep list: each combination of their values is trained.

#include <string>
#include <vector>

#include "command/options.hpp"

namespace calm::apps {

// A name and its values, from --vary NAME=VALUE,...
struct varied_values {
    std::string name;  // an option of training without its dashes, or a size as in --set
    std::vector<std::string> values;
    bool is_size = false;
};

// The lists of --vary, then that of --seeds as "seed". Throws errc::usage for a name that cannot vary, a missing or
// repeated value, or more than 1,000 combinations.
std::vector<varied_values> varied_values_of(sweep_options const& o);

// The options of each combination, with its values in `varied` or in the configurations' names; only `all` if nothing
// varies. The words are the command line that `all` was read from. Throws errc::usage if an option refuses its value,
// errc::config if sizes are refused.
std::vector<sweep_options> combinations_of_sweep(int argc, char const* const* argv, sweep_options const& all);

}  // namespace calm::apps
