#pragma once
/// \file
/// Where and how the values of a model are stored.
/// \shows{examples/05_layer.cpp,gated}

#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/backend.hpp"

namespace calm {

/// One template argument of layers and models: the backend and two types. Scalar is for activations, biases, gains,
/// gradients and optimizer state: float or double. Weights is for stored matrices of weights, including embedding
/// tables: the same type, or bf16 with float. bf16 weights are widened as they are read, and nothing else changes.
template <class Backend = cpu, class Scalar = float, class Weights = Scalar> struct space {
    static_assert(std::is_same_v<Weights, Scalar> || (std::is_same_v<Weights, bf16> && std::is_same_v<Scalar, float>),
                  "calm::space: expected weights of the type of the other numbers, or bf16 weights with float: nothing "
                  "else is widened on reading");
    using backend = Backend;  ///< cpu, emulated or cuda
    using scalar = Scalar;    ///< of activations, biases, gains, gradients and optimizer state
    using weights = Weights;  ///< of matrices of weights
};

/// float with bf16 weights: half the memory, for generation and evaluation. Results are bit-identical to a float model
/// on the same backend whose weights were rounded to bf16.
template <class Backend> using bf16_weights_on = space<Backend, float, bf16>;
/// float with bf16 weights on the cpu.
using bf16_weights = bf16_weights_on<cpu>;

/// Whether a model of this space can be trained: its weights are stored as the type in which they are updated.
template <class Space>
inline constexpr bool is_trainable = std::is_same_v<typename Space::weights, typename Space::scalar>;

}  // namespace calm
