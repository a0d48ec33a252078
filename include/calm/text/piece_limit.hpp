#pragma once
// How long a piece of text may be, inside which byte pairs merge.

#include <cstddef>

#include "calm/base/error.hpp"

namespace calm {

// Merging takes some twenty times a piece's bytes of memory.
inline constexpr std::size_t longest_piece = std::size_t{4} << 20;

// Throws errc::data for a piece of so many bytes that is longer.
inline void require_piece(std::size_t bytes) {
    require(bytes <= longest_piece, errc::data, "expected text with a break (a space, a line, a sign) every ",
            longest_piece, " bytes or sooner, found ", bytes, " without one: divide it");
}

}  // namespace calm
