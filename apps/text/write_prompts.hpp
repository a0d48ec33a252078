#pragma once
// Prompts of the command line or of a file, and each with its text behind it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "calm/sample/generate.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"
#include "text/writing.hpp"

namespace calm::apps {

// Takes the new tokens of a prompt, by its number among those that are written together.
using tell_tokens = std::function<void(std::size_t prompt, std::span<token_id const> fresh)>;
// What generates: the texts of prompts (ids without BOS), the first of which has number `first` of all.
using write_and_tell = std::function<std::vector<generation_result>(std::span<std::vector<token_id> const> prompts,
                                                                    std::uint32_t first, tell_tokens const& told)>;

// Writes the prompts of the options to standard output in their order, each with its text: one alone as it grows,
// several each after a line "=== number", some read and written at a time; a line of statistics to standard error. K
// tokens are a patch, and a prompt has at most so many patches as there are positions. The exit status. Throws as
// prompt_reader, and errc::data for a prompt that is too long.
int write_prompts(generate_options const& o, tokenizer const& words, index_t K, unit_of_writing unit,
                  write_and_tell const& write, index_t positions);

}  // namespace calm::apps
