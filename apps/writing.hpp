#pragma once
// What generate is asked to write, and what it says about it.

#include <span>
#include <string>
#include <vector>

#include "calm/sample/generate.hpp"
#include "options.hpp"

namespace calm::apps {

// The rule of a name at a temperature; `pool` is for adaptive and batch. Throws errc::usage for a name that is none,
// and where the rule cannot serve the temperature.
sampler sampler_of(std::string const& name, std::string const& temperature, index_t pool);

generation_settings generation_settings_of(generate_options const& o);

// The prompts of the command line, then those of the file, a line each; one empty prompt where there is none. Throws
// errc::storage.
std::vector<std::string> prompts_of(generate_options const& o);

// A line about texts that took so long to write.
std::string statistics(std::span<generation_result const> texts, double seconds);

}  // namespace calm::apps
