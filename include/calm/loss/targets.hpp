#pragma once
/// \file
/// Targets of the energy score: y_m = mean + exp(log_std) eps.
/// \shows{tests/loss/energy_score_test.cpp,drawn_targets_are_the_keyed_normals}

#include <cstdint>

#include "calm/base/random.hpp"
#include "calm/tensor/core/rng_counter.hpp"
#include "calm/tensor/core/view.hpp"

namespace calm {

/// Draws eps on the fly. Element l of target m of position r is normal(key, ((first_position + r) M + m) L + l), so
/// splitting a batch does not change the draws.
struct drawn_targets {
    calm::key key;                   ///< seed, stream and step
    rng_counter first_position = 0;  ///< index of position 0 of x within the step

    /// RNG counter of element 0 of target m of position r, for M targets per position.
    [[nodiscard]] CALM_HD constexpr std::uint64_t element(index_t r, index_t M, index_t m, index_t L) const {
        using number = std::uint64_t;
        number const position = first_position.now() + static_cast<number>(r);
        return (position * static_cast<number>(M) + static_cast<number>(m)) * static_cast<number>(L);
    }
};

/// eps supplied by the caller, (M, R, L).
template <class T, class Backend = cpu> struct given_targets {
    view<T const, extents<dyn, dyn, dyn>, Backend> eps;  ///< (M, R, L)
};

}  // namespace calm
