#pragma once
// Upper limits for sizes and training settings, whether they come from an option, a file or a caller. They are far
// above practical values, and low enough that products of them do not overflow.

#include "calm/base/token.hpp"  // limits::vocabulary
#include "calm/tensor/core/extents.hpp"

namespace calm::limits {

inline constexpr index_t patch_size = 1024;                // tokens
inline constexpr index_t width = index_t{1} << 18;         // of any layer, latent or noise
inline constexpr index_t layers = 1024;                    // of each kind
inline constexpr index_t samples = 4096;                   // model samples per position; all pairs are compared
inline constexpr index_t targets = 10'000;                 // per position, in the loss
inline constexpr index_t block_tokens = index_t{1} << 20;  // P K
inline constexpr index_t step_tokens = 0x7FFF'FFFF;        // batch rows are numbered with 31 bits
inline constexpr index_t steps = 0xFFFF'FFFF;              // a random key has 32 bits for the step
inline constexpr index_t text_tokens = index_t{1} << 30;   // generated after a prompt
inline constexpr double weight = 1e6;                      // of one term of a loss

}  // namespace calm::limits
