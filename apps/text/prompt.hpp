#pragma once
// Checks and encodes prompts.

#include <cstddef>
#include <string>
#include <vector>

#include "calm/sample/generate.hpp"
#include "calm/text/tokenizer.hpp"
#include "text/prompt_source.hpp"

namespace calm::apps {

// The tokens of a prompt, without BOS; patches have K tokens. Never truncates. Throws errc::data if the prompt is
// longer than longest_prompt, needs more patches than the model has positions, or needs none.
inline std::vector<token_id> prompt_tokens(std::string const& prompt, tokenizer const& tokenizer, index_t K,
                                           index_t positions) {
    require(prompt.size() <= longest_prompt, errc::data, "expected a prompt of at most ", longest_prompt,
            " bytes, found ", prompt.size());
    auto tokens = tokenizer.encode(prompt);
    auto const special = tokenizer.specials();
    auto const all = padded_prompt(after_bos(special, tokens), K, special.pad, true);
    require(!all.empty(), errc::data, "expected a prompt, found none: the vocabulary has no BOS to begin with");
    auto const patches = static_cast<index_t>(all.size()) / K;
    require(patches <= positions, errc::data, "expected a prompt of at most ", positions, " patches of ", K,
            " tokens, the model's max_position_embeddings, found ", patches, ": shorten it");
    return tokens;
}

}  // namespace calm::apps
