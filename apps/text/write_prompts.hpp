#pragma once
// Prints prompts from the command line or a file, each followed by its generated text.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "calm/sample/generate.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"
#include "text/generation.hpp"

namespace calm::apps {

// Receives new tokens of a prompt, given by its index in the current call.
using token_callback = std::function<void(std::size_t prompt, std::span<token_id const> fresh)>;
// Generates texts for prompts (ids without BOS); the first prompt has number `first` among all.
using write_with_callback = std::function<std::vector<generation_result>(
    std::span<std::vector<token_id> const> prompts, std::uint32_t first, token_callback const& on_tokens)>;

// Prints each prompt of the options with its text, in order, and statistics on standard error. A single prompt is
// printed as its text grows. Several are generated in batches, and a line "=== number" precedes each. Patches have K
// tokens; a prompt has at most `positions` patches. Returns the exit status. Throws as prompt_reader does, and
// errc::data for a prompt that is too long.
int write_prompts(generate_options const& o, tokenizer const& tokenizer, index_t K, generation_unit unit,
                  write_with_callback const& write, index_t positions);

}  // namespace calm::apps
