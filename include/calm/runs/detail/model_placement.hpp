#pragma once
// Where a model computes, and its context there.

#include <cstdint>
#include <optional>
#include <type_traits>

#include "calm/tensor/core/backend.hpp"
#include "calm/tensor/core/context.hpp"

namespace calm {

// Where a model computes.
struct model_placement {
    int threads = 0;                 // 0: all of the machine's; unused on a GPU
    std::optional<int> device = {};  // the number of the GPU; without one, the GPU that the process uses, or number 0
    std::uint64_t seed = 0;          // of the context
    bool in_int8 = false;            // hold weight matrices in int8; only on the cpu
};

// A context for a model at this placement. Throws as the constructors of context<Backend>.
template <class Backend> context<Backend> context_at(model_placement const& placement) {
    if constexpr (std::is_same_v<Backend, cuda>)
        return placement.device ? context<Backend>(placement.seed, *placement.device)
                                : context<Backend>(placement.seed);
    else
        return context<Backend>(placement.seed, placement.threads);
}

}  // namespace calm
