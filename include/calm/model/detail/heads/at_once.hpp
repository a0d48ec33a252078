#pragma once
// How many positions a head processes at once.

#include <algorithm>

#include "calm/tensor/detail/core/working_set.hpp"

namespace calm {

// Chunk size in positions, at least 1, for N samples per position and `numbers` elements of memory per sample. On the
// host a chunk fits into the caches.
template <class T, class Backend> index_t positions_at_once(context<Backend> const& ctx, index_t N, index_t numbers) {
    index_t const samples = rows_at_once(ctx, 1024, static_cast<std::size_t>(numbers) * sizeof(T));
    return std::max<index_t>(1, samples / std::max<index_t>(1, N));
}

}  // namespace calm
