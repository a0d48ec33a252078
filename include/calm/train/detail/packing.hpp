#pragma once
// Packs elements of many tensors into one buffer for ranks to exchange; detail/block/packing.hpp has the kernels.

#include "calm/tensor/core/context.hpp"
#include "calm/train/detail/block/packing.hpp"

namespace calm::detail {

// CPU version. Applies pack, pack_away, unpack or sum_of_ranks to all parts.
template <class T, class Do> void run_packing(context<cpu> const& ctx, packed_parts<T> const& all, Do const& what) {
    ctx.parallel(all.count, [&](index_t i) {
        auto const& part = all.parts[i];
        auto const& slot = all.slots[part.slot];
        what(slot.data + (part.begin - slot.first), part.at, part.end - part.begin, 0, 1);
    });
}

}  // namespace calm::detail
