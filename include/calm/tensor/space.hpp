#pragma once
// Where and how the numbers of a model live.

#include <type_traits>

#include "calm/tensor/backend.hpp"

namespace calm {

// One value for layers and models to be templates of: the memory they stand in, the type of weights and activations in
// it, the type that sums and gradients are computed in, and the type of the weights that the optimizer changes.
// Today the three types are one, float or double: bf16 will be another Storage, and no other layer.
template <class Backend = cpu, class Storage = float, class Compute = Storage, class Master = Compute> struct space {
    static_assert(std::is_same_v<Storage, Compute> && std::is_same_v<Compute, Master>,
                  "calm::space: expected numbers that are stored as they are computed with: this version has no verbs "
                  "that convert; name one type");
    using backend = Backend;  // cpu, emulated or cuda
    using storage = Storage;  // of weights and activations
    using compute = Compute;  // of sums and gradients
    using master = Master;    // of the weights that are updated, and their moments
};

}  // namespace calm
