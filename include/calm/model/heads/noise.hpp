#pragma once
// Which noise a head's samples get.

#include "calm/tensor/extents.hpp"
#include "calm/tensor/random.hpp"

namespace calm {

// Of the samples of one row, a hidden state: sample n draws as number first + n of `draws`. So the rows of a batch can
// belong to different texts, and a sample is the same whatever is drawn beside it.
struct noise_place {
    key draws;          // seed, stream and step of the text's samples
    index_t first = 0;  // number of the row's sample 0
};

}  // namespace calm
