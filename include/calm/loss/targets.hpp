#pragma once
// Where the targets of the energy score come from: y_m = mean + exp(log_std) eps.

#include "calm/tensor/random.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// eps is drawn inside: that of target m of position r, element l, is normal(key, ((first_position + r) M + m) L + l).
// So pieces of a batch draw what the whole batch does.
struct drawn_targets {
    calm::key key;               // seed, stream and step of the draws
    index_t first_position = 0;  // the number of x's position 0 in the step
};

// eps is given, (M, R, L).
template <class T, class Backend = cpu> struct given_targets {
    view<T const, extents<dyn, dyn, dyn>, Backend> eps;  // (M, R, L)
};

}  // namespace calm
