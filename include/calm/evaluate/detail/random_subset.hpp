#pragma once
// A random subset of a sequence.

#include <cmath>
#include <cstdint>
#include <limits>

#include "calm/base/random.hpp"
#include "calm/sample/detail/batch_rule.hpp"

namespace calm::detail {

// Selects `wanted` of `all` items that come in order, or all items if there are fewer. Every subset is equally likely,
// up to the precision of the draws (probabilities to within 2^-32 below 2^32 items, 2^-53 above).
class random_subset {
public:
    // Equal keys give equal subsets.
    random_subset(key k, std::uint64_t all, std::uint64_t wanted) : random_(k), left_(all), wanted_(wanted) {}

    // Whether the next item is selected.
    bool takes() {
        if (wanted_ == 0) return false;
        if (wanted_ >= left_) return true;
        bool const take = below(left_--) < wanted_;
        wanted_ -= take ? 1 : 0;
        return take;
    }

private:
    std::uint64_t below(std::uint64_t n) {
        if (n <= std::numeric_limits<std::uint32_t>::max()) return random_.below(static_cast<std::uint32_t>(n));
        return static_cast<std::uint64_t>(std::floor(random_.uniform_double() * static_cast<double>(n)));
    }

    random_sequence random_;
    std::uint64_t left_;
    std::uint64_t wanted_;
};

}  // namespace calm::detail
