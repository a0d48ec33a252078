#pragma once
// Which random numbers a row gets.

#include <cstdint>

#include "calm/base/random.hpp"
#include "calm/tensor/extents.hpp"

namespace calm {

// Of the samples of one row, a hidden state: sample n draws as number first + n of `draws`. So the rows of a batch can
// belong to different texts, and a sample is the same whatever is drawn beside it.
struct noise_place {
    key draws;          // seed, stream and step of the text's samples
    index_t first = 0;  // number of the row's sample 0
};

namespace detail {
// The block of a key's sequence that is the seed of the sequence of a step: so far from the end.
CALM_HD constexpr std::uint64_t block_of_step(std::uint32_t step) {
    return ~std::uint64_t{step};
}
}  // namespace detail

// A sequence of its own for a step on the way of the same samples, whose number is below 2^32: its seed is the block so
// far from the end of the key's sequence, of the step of the run that kernels see.
CALM_HD constexpr key key_of_step(key draws, std::uint32_t step) {
    draws.seed_block = detail::block_of_step(step);
    return draws.live_step == nullptr ? draws.by_value() : draws;
}

// Which sequence of a place's key: its own, or that of key_of_step.
struct sequence_of {
    std::uint64_t seed_block = 0;  // of the sequence; 0: it is the key's own

    // The key's own.
    static constexpr sequence_of place() { return {}; }
    // That of a step on the way of the samples.
    static constexpr sequence_of step(std::uint32_t number) { return {detail::block_of_step(number)}; }
};

}  // namespace calm
