#pragma once
// What generate is asked to write, and what it says about it.

#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "calm/sample/generate.hpp"
#include "command/options.hpp"

namespace calm::apps {

// The rule of a name at a temperature, adaptive where there is no name; `pool` is for adaptive and batch. Throws
// errc::usage for a name that is none, and where the rule cannot serve the temperature.
sampler sampler_of(std::string const& name, std::string const& temperature, index_t pool);
// The same of an autoregressive model, which knows one rule: exact.
token_sampler token_sampler_of(std::string const& name, std::string const& temperature, index_t top_k = 0,
                               double top_p = 1);

// Whether a directory says that it holds an autoregressive model; false where that cannot be read.
bool is_autoregressive(std::string const& directory);
// What the head of a CALM is; nullptr of other models, and where the directory holds none.
head_facts const* head_of(std::string const& directory);

// A file of prompts, open: a regular one, a pipe or a terminal. Throws errc::storage for what cannot be read, or may
// never end (a device).
std::ifstream opened_prompts(std::string const& path);

generation_settings generation_settings_of(generate_options const& o);
token_generation_settings token_generation_settings_of(generate_options const& o);

// The prompts of the command line, then those of the file, a line each; one empty prompt where there is none. The
// prompt - is all of standard input without the end of its last line, the file - its lines. Throws errc::storage, and
// errc::data for more than 64 MiB and for a line of the file that is no UTF-8.
std::vector<std::string> prompts_of(generate_options const& o);

// What is counted of texts.
struct written {
    std::size_t texts = 0, tokens = 0, ended = 0;
    index_t patches = 0, draws = 0, capped = 0;

    written() = default;
    explicit written(std::span<generation_result const> made) {
        for (auto const& text : made) add(text);
    }
    void add(generation_result const& text);
};

// What a model writes at once: a CALM a patch, an autoregressive model a token.
enum class unit_of_writing { patch, token };

// A line about texts that took so long to write.
std::string statistics(written const& all, double seconds, unit_of_writing unit);

}  // namespace calm::apps
