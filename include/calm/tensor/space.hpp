#pragma once
// Where and how the numbers of a model live.

#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/backend.hpp"

namespace calm {

// One value for layers and models to be templates of: the memory they stand in, the type of activations, biases and
// gains in it, the type that sums and gradients are computed in, the type of the weights that the optimizer changes,
// and the type that matrices of weights are stored in: tables of embeddings too.
// The first three types are one, float or double. Weights are of the same, or bf16 beside float: then they are widened
// as they are read, and nothing else changes.
template <class Backend = cpu, class Storage = float, class Compute = Storage, class Master = Compute,
          class Weights = Storage>
struct space {
    static_assert(std::is_same_v<Storage, Compute> && std::is_same_v<Compute, Master>,
                  "calm::space: expected numbers that are stored as they are computed with: this version has no verbs "
                  "that convert; name one type");
    static_assert(std::is_same_v<Weights, Storage> || (std::is_same_v<Weights, bf16> && std::is_same_v<Storage, float>),
                  "calm::space: expected weights of the type of the other numbers, or bf16 beside float: nothing else "
                  "is widened as it is read");
    using backend = Backend;  // cpu, emulated or cuda
    using storage = Storage;  // of activations, biases and gains
    using compute = Compute;  // of sums and gradients
    using master = Master;    // of the weights that are updated, and their moments
    using weights = Weights;  // of matrices of weights
};

// float with weights in bf16: a model to write with or to be evaluated, of half the memory. Its numbers are, to the
// bit, those of a model of the same backend whose weights in float were rounded to bf16.
template <class Backend> using bf16_weights_on = space<Backend, float, float, float, bf16>;
// The same on the cpu.
using bf16_weights = bf16_weights_on<cpu>;

// Whether a model of the space can be trained: its weights are stored as they are updated.
template <class Space>
inline constexpr bool is_trainable = std::is_same_v<typename Space::weights, typename Space::master>;

}  // namespace calm
