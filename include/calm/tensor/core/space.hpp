#pragma once
// Where and how the values of a model are stored.

#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/backend.hpp"

namespace calm {

// One template argument of layers and models: the backend, and four types. Storage is for activations, biases and
// gains. Compute is for sums and gradients. Master is for the weights that the optimizer updates. Weights is for stored
// weight matrices, including embedding tables.
// The first three types are one, float or double. Weights is the same, or bf16 with float: weights are then widened as
// they are read, and nothing else changes.
template <class Backend = cpu, class Storage = float, class Compute = Storage, class Master = Compute,
          class Weights = Storage>
struct space {
    static_assert(std::is_same_v<Storage, Compute> && std::is_same_v<Compute, Master>,
                  "calm::space: expected one type for storage, computation and master weights: no operation of this "
                  "version converts");
    static_assert(std::is_same_v<Weights, Storage> || (std::is_same_v<Weights, bf16> && std::is_same_v<Storage, float>),
                  "calm::space: expected weights of the type of the other numbers, or bf16 weights with float: nothing "
                  "else is widened on reading");
    using backend = Backend;  // cpu, emulated or cuda
    using storage = Storage;  // of activations, biases and gains
    using compute = Compute;  // of sums and gradients
    using master = Master;    // of the weights that are updated, and their optimizer state
    using weights = Weights;  // of matrices of weights
};

// float with bf16 weights: half the memory, for generation and evaluation. Results are bit-identical to a float model
// on the same backend whose weights were rounded to bf16.
template <class Backend> using bf16_weights_on = space<Backend, float, float, float, bf16>;
// float with bf16 weights on the cpu.
using bf16_weights = bf16_weights_on<cpu>;

// Whether a model of this space can be trained: its weights are stored as the type in which they are updated.
template <class Space>
inline constexpr bool is_trainable = std::is_same_v<typename Space::weights, typename Space::master>;

}  // namespace calm
