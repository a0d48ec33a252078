#pragma once
// The maximum length of a piece, within which byte pairs merge.

#include <cstddef>

#include "calm/base/error.hpp"

namespace calm::detail {

// Merging takes memory of some twenty times the bytes of the piece.
inline constexpr std::size_t longest_piece = std::size_t{4} << 20;

// Throws errc::data if a piece of `bytes` bytes is too long.
inline void require_piece(std::size_t bytes) {
    require(bytes <= longest_piece, errc::data, "expected text with a break (a space, a line, a sign) every ",
            longest_piece, " bytes or sooner, found ", bytes, " without one: split it");
}

}  // namespace calm::detail
