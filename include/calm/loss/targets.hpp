#pragma once
// Where the targets of the energy score come from: y_m = mean + exp(log_std) eps.

#include <cstdint>

#include "calm/base/random.hpp"
#include "calm/tensor/draw_number.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

// eps is drawn inside: that of target m of position r, element l, is normal(key, ((first_position + r) M + m) L + l).
// So pieces of a batch draw what the whole batch does.
struct drawn_targets {
    calm::key key;                   // seed, stream and step of the draws
    draw_number first_position = 0;  // the number of x's position 0 in the step

    // The number of element 0 of target m of M of position r.
    [[nodiscard]] CALM_HD constexpr std::uint64_t element(index_t r, index_t M, index_t m, index_t L) const {
        using number = std::uint64_t;
        number const position = first_position.now() + static_cast<number>(r);
        return (position * static_cast<number>(M) + static_cast<number>(m)) * static_cast<number>(L);
    }
};

// eps is given, (M, R, L).
template <class T, class Backend = cpu> struct given_targets {
    view<T const, extents<dyn, dyn, dyn>, Backend> eps;  // (M, R, L)
};

}  // namespace calm
