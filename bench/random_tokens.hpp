#pragma once
// Random tokens as input for timings.

#include <cstdint>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/base/token.hpp"
#include "calm/tensor/core/extents.hpp"

namespace bench {

inline std::vector<calm::token_id> random_tokens(calm::index_t count, calm::index_t vocabulary) {
    std::vector<calm::token_id> tokens;
    calm::random_sequence draws(calm::key{1, calm::stream::story, 0});
    for (calm::index_t i = 0; i < count; ++i)
        tokens.push_back(static_cast<calm::token_id>(draws.below(static_cast<std::uint32_t>(vocabulary))));
    return tokens;
}

}  // namespace bench
