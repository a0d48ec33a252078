#pragma once
// How large the numbers of a model and of its training may be, whoever gives them: an option, a file, a caller. Far
// above what is of use, and so small that what they are multiplied to can be counted.

#include "calm/base/token.hpp"  // limits::vocabulary
#include "calm/tensor/extents.hpp"

namespace calm::limits {

inline constexpr index_t patch_size = 1024;                // tokens
inline constexpr index_t width = index_t{1} << 18;         // of any layer, latent or noise
inline constexpr index_t layers = 1024;                    // of one kind
inline constexpr index_t samples = 4096;                   // of the model at a position: their pairs are compared
inline constexpr index_t targets = 10'000;                 // drawn at a position, in the loss
inline constexpr index_t block_tokens = index_t{1} << 20;  // P K
inline constexpr index_t step_tokens = 0x7FFF'FFFF;        // the rows of a batch have numbers of 31 bits
inline constexpr index_t steps = 0xFFFF'FFFF;              // a random number's key has 32 bits for its step
inline constexpr index_t text_tokens = index_t{1} << 30;   // that are written after a prompt
inline constexpr double weight = 1e6;                      // of a part of a loss

}  // namespace calm::limits
