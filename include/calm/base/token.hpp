#pragma once

#include <cstdint>

namespace calm {

// A token id, 0 <= id < V.
using token_id = std::int32_t;

}  // namespace calm
