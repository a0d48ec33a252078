#pragma once
// Options of generate as sampler and generation settings, its prompts, and its statistics.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calm/io/model_description.hpp"
#include "calm/runs/detail/loaded_model.hpp"
#include "command/options.hpp"
#include "text/prompt_source.hpp"

namespace calm::apps {

// The sampler for a rule's name (adaptive if empty) and a temperature; `pool` applies to adaptive and batch. Throws
// errc::usage for an unknown name, or if the rule does not support the temperature.
sampler sampler_of(std::string const& name, std::string const& temperature, index_t pool);
// The sampler of an autoregressive model, whose only rule is exact.
token_sampler token_sampler_of(std::string const& name, std::string const& temperature, index_t top_k = 0,
                               double top_p = 1);

// The content of config.json in a model's directory. Empty if it is missing or invalid; opening the model reports why.
std::optional<model_description> description_in(std::string const& directory);

// For an autoregressive model, or for a CALM.
any_generation_settings generation_settings_of(generate_options const& o, bool autoregressive);

// Prompts from the command line, then from the file, one per line; one empty prompt if neither is given. The prompt -
// is all of standard input; the file - is the lines of standard input.
class prompt_reader {
public:
    // Opens the file. Throws errc::storage.
    explicit prompt_reader(generate_options const& o);
    prompt_reader(prompt_reader const&) = delete;
    prompt_reader& operator=(prompt_reader const&) = delete;

    // The next prompts, at most `most`; empty at the end. Throws as prompt_source does, and errc::data for a prompt
    // over 1 MiB, invalid UTF-8, or a file without a prompt.
    std::vector<std::string> next(std::size_t most);

private:
    bool next_given(std::string& prompt);
    bool next_of_file(std::string& prompt);

    std::vector<std::string> given_;
    std::optional<prompt_source> file_;
    bool any_line_ = false;  // in the file
    std::size_t taken_ = 0;  // of the given prompts
    std::size_t count_ = 0;  // returned by next()
};

// Counts over generated texts.
struct generation_statistics {
    std::size_t texts = 0, tokens = 0;
    std::size_t ended = 0, stopped = 0;  // by EOS, by a stop string
    index_t patches = 0, draws = 0, capped = 0;

    void add(generation_result const& text, bool at_stop = false);
};

// What a model generates per position: a patch (CALM) or a token (autoregressive model).
enum class generation_unit { patch, token };

// One line of statistics on texts generated in this time.
std::string statistics(generation_statistics const& all, double seconds, generation_unit unit);

}  // namespace calm::apps
