#pragma once
// All parameters in parts of bounded size, so that one launch goes over all of them: a block or a task a part.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "calm/tensor/extents.hpp"

namespace calm::detail {

// Some elements of one of the parameters.
struct parameter_range {
    index_t slot;  // the parameter's number
    index_t begin;
    index_t end;
};
inline constexpr index_t range_grain = 16384;  // elements of a range; the last of a parameter may have fewer

// Of parameters with `slot.size` elements, in order.
template <class Slot> std::vector<parameter_range> ranges_of(std::vector<Slot> const& slots) {
    std::vector<parameter_range> all;
    for (std::size_t s = 0; s < slots.size(); ++s)
        for (index_t begin = 0; begin < slots[s].size; begin += range_grain)
            all.push_back({static_cast<index_t>(s), begin, std::min(slots[s].size, begin + range_grain)});
    return all;
}

}  // namespace calm::detail
