#pragma once
// Where the targets of the energy score come from: y_m = mean + exp(log_std) eps.

#include "calm/tensor/random.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// eps is drawn inside: that of target m of position r, element l, is normal(key, ((first_position + r) M + m) L + l).
// So pieces of a batch draw what the whole batch does.
struct drawn_targets {
    calm::key key;
    index_t first_position = 0;
};

// eps is given, (M, R, L).
template <class T, class Backend = cpu> struct given_targets { view<T const, extents<dyn, dyn, dyn>, Backend> eps; };

}  // namespace calm
