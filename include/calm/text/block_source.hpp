#pragma once
// Blocks of tokens that are read one at a time.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>

#include "calm/base/token.hpp"

namespace calm {

// Takes a block, whose tokens live until it returns.
using block_visitor = std::function<void(std::span<token_id const> block)>;

// Gives a visitor blocks of equal length, one after another; the same ones whenever it is called.
using block_source = std::function<void(block_visitor const&)>;

// Those of tokens in memory, which outlive it. What remains at the end comes as a shorter one.
[[nodiscard]] inline block_source blocks_in(std::span<token_id const> tokens, std::size_t block_tokens) {
    return [tokens, block_tokens](block_visitor const& visitor) {
        for (auto rest = tokens; !rest.empty(); rest = rest.subspan(std::min(block_tokens, rest.size())))
            visitor(rest.first(std::min(block_tokens, rest.size())));
    };
}

}  // namespace calm
