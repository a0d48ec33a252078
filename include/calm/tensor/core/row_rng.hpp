#pragma once
/// \file
/// Which random numbers each row gets.
/// \shows{examples/07_head.hpp,guessing_head}

#include <cstdint>

#include "calm/base/random.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

/// RNG key and counter of one row (a hidden state): sample n draws number first + n of `draws`. So the rows of a batch
/// may belong to different texts, and a sample does not depend on what else is drawn.
struct row_rng {
    key draws;          ///< seed, stream and step of the text's samples
    index_t first = 0;  ///< number of the row's sample 0
};

namespace detail {
// The block of a key's sequence that seeds a step's substream, counted from the end.
CALM_HD constexpr std::uint64_t block_of_step(std::uint32_t step) {
    return ~std::uint64_t{step};
}
}  // namespace detail

/// Derives an independent substream for a sampling step below 2^32: a block near the end of the key's sequence seeds
/// it. If kernels read the run's step (live_step), they still do with this key.
CALM_HD constexpr key substream_key(key draws, std::uint32_t step) {
    draws.seed_block = detail::block_of_step(step);
    return draws.live_step == nullptr ? draws.by_value() : draws;
}

/// Selects a sequence of a place's key: its own, or the substream of a sampling step (substream_key).
struct rng_substream {
    std::uint64_t seed_block = 0;  ///< of the substream; 0: the key's own sequence

    /// The key's own sequence.
    static constexpr rng_substream of_row() { return {}; }
    /// The substream of a sampling step.
    static constexpr rng_substream step(std::uint32_t number) { return {detail::block_of_step(number)}; }
};

}  // namespace calm
