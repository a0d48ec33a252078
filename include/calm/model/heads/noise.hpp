#pragma once
// Which noise a head's samples get.

#include <cstdint>
#include <span>

#include "calm/base/random.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// Of the samples of one row, a hidden state: sample n draws as number first + n of `draws`. So the rows of a batch can
// belong to different texts, and a sample is the same whatever is drawn beside it.
struct noise_place {
    key draws;          // seed, stream and step of the text's samples
    index_t first = 0;  // number of the row's sample 0
};

// A sequence of its own for a step on the way of the same samples, whose number is below 2^32: its seed is the block so
// far from the end of the key's sequence. The host computes it: it is of the step of now.
constexpr key key_of_step(key draws, std::uint32_t step) {
    philox_block const words = philox(draws.by_value(), ~std::uint64_t{step});
    return {words.v[0] | std::uint64_t{words.v[1]} << 32U, draws.stream, draws.step};
}

// noise (R N, W), for N samples of each of R places: fill(samples (N, W), key, element), the number of their first
// element in the key's sequence. Number i of a key is its elements i W .. i W + W - 1.
template <class T, index_t W, class Backend, class Fill>
void fill_places(matrix_view<T, W, Backend> const& noise, std::span<noise_place const> places, Fill const& fill) {
    auto const count = static_cast<index_t>(places.size());
    for (index_t r = 0, samples = count > 0 ? noise.extent(0) / count : 0; r < count; ++r) {
        auto const& [draws, first] = places[static_cast<std::size_t>(r)];
        fill(rows(noise, r * samples, samples), draws, static_cast<std::uint64_t>(first) * std::uint64_t{W});
    }
}

}  // namespace calm
