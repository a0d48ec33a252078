#pragma once
// Answers prompts given as JSON lines with JSON lines.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "calm/io/model_description.hpp"
#include "calm/sample/generate.hpp"
#include "calm/sample/stop_strings.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"
#include "text/generation.hpp"
#include "text/prompt_source.hpp"

namespace calm::apps {

// Generates texts for prompts (ids without BOS); the first prompt has number `first` among all.
using write_texts =
    std::function<std::vector<generation_result>(std::span<std::vector<token_id> const> prompts, std::uint32_t first)>;

inline constexpr std::size_t longest_batch_line = 1'000'000;  // in bytes, far beyond the positions of any model

struct batch_count {
    std::size_t lines = 0;
    std::size_t bad = 0;
    generation_statistics texts;  // of the answers
};

// Answers each line {"id": string or number, "prompt": "..."} of `in` by one call of put(), in order: {"id", "prompt",
// "text", "tokens", "patches", "draws", "stopped_at_eos", "finish_reason", "stop_reason"}, with the id copied byte for
// byte. An invalid line is answered with {"line", "id" if known, "error"}. A line's "max_tokens" and then a stop string
// cut its text; patches and draws then count the uncut text. Other keys that change generation are refused, and unknown
// keys are ignored.
//
// finish_reason is "stop" (EOS or a stop string) or "length", as in OpenAI's interface. stop_reason is the stop string,
// or null.
//
// Available lines are answered before the function waits for more. A text depends on its prompt and on the line's
// number among the non-blank lines. Patches have K tokens. A prompt has at most `positions` patches and a text at most
// `max_tokens` tokens.
batch_count answer_lines(prompt_source& in, tokenizer const& tokenizer, index_t K, write_texts const& write,
                         std::function<void(std::string const&)> const& put,
                         index_t positions = model_description{}.max_position_embeddings,
                         index_t max_tokens = generate_options{}.max_tokens,
                         stop_strings const& stops = stop_strings());

// Calls answer_lines() on the files of the options or standard input and output, and reports statistics on standard
// error. Returns the exit status: 0, or errc::data if lines were invalid. Throws errc::storage.
int answer_batch(generate_options const& o, tokenizer const& tokenizer, index_t K, generation_unit unit,
                 write_texts const& write, index_t positions);

}  // namespace calm::apps
