#pragma once
// How much of a job a backend does at once. The backend decides, not the model: caches need small parts, a GPU few
// large kernels.

#include <algorithm>
#include <cstddef>

#include "calm/tensor/core/context.hpp"

namespace calm {

// How many rows of a job to process at once, at least 1, if each takes `bytes` of memory meanwhile. On the host
// `cached` rows, which stay in its caches; on a device as many as fit in a quarter of its memory. Rows processed
// separately are summed in another order, so a device with another memory size gives other bits.
template <class Backend>
index_t rows_at_once([[maybe_unused]] context<Backend> const& ctx, [[maybe_unused]] index_t cached,
                     [[maybe_unused]] std::size_t bytes) {
    if constexpr (host_memory<Backend>)
        return std::max<index_t>(1, cached);
    else
        return std::max<index_t>(1, static_cast<index_t>(ctx.memory / 4 / std::max<std::size_t>(1, bytes)));
}

}  // namespace calm
