#pragma once
// Splits all parameters into ranges of bounded size, so that one launch covers them with one block or task per range.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "calm/tensor/core/extents.hpp"

namespace calm::detail {

// Elements begin .. end - 1 of a parameter.
struct parameter_range {
    index_t slot;  // index of the parameter
    index_t begin;
    index_t end;
};
inline constexpr index_t range_grain = 16384;  // elements per range; the last range of a parameter may be shorter

// Ranges of parameters with `slot.size` elements, in order.
template <class Slot> std::vector<parameter_range> ranges_of(std::vector<Slot> const& slots) {
    std::vector<parameter_range> all;
    for (std::size_t s = 0; s < slots.size(); ++s)
        for (index_t begin = 0; begin < slots[s].size; begin += range_grain)
            all.push_back({static_cast<index_t>(s), begin, std::min(slots[s].size, begin + range_grain)});
    return all;
}

}  // namespace calm::detail
