#pragma once
// Sources of token blocks that are read one at a time.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>

#include "calm/base/token.hpp"

namespace calm {

// Receives a block; its tokens are valid only during the call.
using block_visitor = std::function<void(std::span<token_id const> block)>;

// Calls a visitor with blocks of equal length, in order. Every call gives the same blocks.
using block_source = std::function<void(block_visitor const&)>;

// Blocks of tokens in memory, which must outlive the source. The last block may be shorter.
[[nodiscard]] inline block_source blocks_in(std::span<token_id const> tokens, std::size_t block_tokens) {
    return [tokens, block_tokens](block_visitor const& visitor) {
        for (auto rest = tokens; !rest.empty(); rest = rest.subspan(std::min(block_tokens, rest.size())))
            visitor(rest.first(std::min(block_tokens, rest.size())));
    };
}

}  // namespace calm
