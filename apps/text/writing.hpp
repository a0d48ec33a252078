#pragma once
// What generate is asked to write, and what it says about it.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calm/io/model_description.hpp"
#include "calm/sample/generate.hpp"
#include "command/options.hpp"
#include "text/prompt_source.hpp"

namespace calm::apps {

// The rule of a name at a temperature, adaptive where there is no name; `pool` is for adaptive and batch. Throws
// errc::usage for a name that is none, and where the rule cannot serve the temperature.
sampler sampler_of(std::string const& name, std::string const& temperature, index_t pool);
// The same of an autoregressive model, which knows one rule: exact.
token_sampler token_sampler_of(std::string const& name, std::string const& temperature, index_t top_k = 0,
                               double top_p = 1);

// What config.json of a model's directory says; nothing where there is none or it is refused: whoever opens the model
// says why.
std::optional<model_description> description_in(std::string const& directory);

generation_settings generation_settings_of(generate_options const& o);
token_generation_settings token_generation_settings_of(generate_options const& o);

// The prompts of the command line, then those of the file, a line each; one empty prompt where neither is given. The
// prompt - is all of standard input, the file - its lines.
class prompt_reader {
public:
    // Opens the file. Throws errc::storage.
    explicit prompt_reader(generate_options const& o);
    prompt_reader(prompt_reader const&) = delete;
    prompt_reader& operator=(prompt_reader const&) = delete;

    // The next ones, so many where there are as many left; none at their end. Throws as prompt_source, and errc::data
    // for one of more than 1 MiB, for bytes that are no UTF-8, and for a source without a prompt.
    std::vector<std::string> next(std::size_t most);

private:
    bool next_given(std::string& prompt);
    bool next_of_file(std::string& prompt);

    std::vector<std::string> given_;
    std::optional<prompt_source> file_;
    bool any_line_ = false;  // of the file
    std::size_t taken_ = 0;  // of those given
    std::size_t count_ = 0;  // that next() gave
};

// What is counted of texts.
struct written {
    std::size_t texts = 0, tokens = 0, ended = 0;
    index_t patches = 0, draws = 0, capped = 0;

    void add(generation_result const& text);
};

// What a model writes at once: a CALM a patch, an autoregressive model a token.
enum class unit_of_writing { patch, token };

// A line about texts that took so long to write.
std::string statistics(written const& all, double seconds, unit_of_writing unit);

}  // namespace calm::apps
