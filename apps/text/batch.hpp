#pragma once
// Many prompts as JSON lines, and their texts as JSON lines.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "calm/io/model_description.hpp"
#include "calm/sample/generate.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"
#include "text/prompt_source.hpp"
#include "text/writing.hpp"

namespace calm::apps {

// What generates: the texts of prompts (ids without BOS), the first of which has number `first` of all.
using write_texts =
    std::function<std::vector<generation_result>(std::span<std::vector<token_id> const> prompts, std::uint32_t first)>;

inline constexpr std::size_t longest_batch_line = 1'000'000;  // bytes: far more than the positions of any model

struct batch_count {
    std::size_t lines = 0;
    std::size_t bad = 0;
};

// Answers every line {"id": string or number, "prompt": "..."} of `in` with one of its own by `put`, in their order:
// {"id", "prompt", "text", "tokens", "patches", "draws", "stopped_at_eos"}, the id byte for byte as it came, or
// {"line", "id" where it is known, "error"} for a line that is bad. "max_tokens" of a line cuts its text, whose patches
// and draws are those before the cut; other keys that ask for a way of writing are refused, and the rest is ignored.
// Lines that are there are answered before the next is waited for; a text depends on its prompt and on the number of
// its line among those that are not blank. K tokens are a patch, and a prompt has at most so many patches as there are
// positions, a text `max_tokens` tokens.
batch_count answer_lines(prompt_source& in, tokenizer const& words, index_t K, write_texts const& write,
                         std::function<void(std::string const&)> const& put,
                         index_t positions = model_description{}.max_position_embeddings,
                         index_t max_tokens = generate_options{}.max_tokens);

// The same of the options' files or standard input and output, with a line of statistics on standard error. The exit
// status: 0, or that of errc::data where some lines were bad. Throws errc::storage.
int answer_batch(generate_options const& o, tokenizer const& words, index_t K, unit_of_writing unit,
                 write_texts const& write, index_t positions);

}  // namespace calm::apps
