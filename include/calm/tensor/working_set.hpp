#pragma once
// How much of a job an executor does at once. It is the executor's to say, not the model's: caches want little, a GPU
// wants few and large kernels.

#include <algorithm>
#include <cstddef>

#include "calm/tensor/context.hpp"

namespace calm {

// How many rows of a job are worked on at once, at least 1, where a row takes `bytes` of memory while it is: on the
// host `cached` of them, which stay in its caches; on a device as many as a quarter of its memory holds. Sums over rows
// that are worked on apart are added in another order than those over rows together, so a device of another size has
// other bits.
template <class Backend>
index_t rows_at_once([[maybe_unused]] context<Backend> const& ctx, [[maybe_unused]] index_t cached,
                     [[maybe_unused]] std::size_t bytes) {
    if constexpr (host_memory<Backend>)
        return std::max<index_t>(1, cached);
    else
        return std::max<index_t>(1, static_cast<index_t>(ctx.memory / 4 / std::max<std::size_t>(1, bytes)));
}

}  // namespace calm
