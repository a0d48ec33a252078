#pragma once
/// \file
/// A model that owns the memory of its parameters.
/// \shows{tests/model/owned_model_test.cpp,a_model_has_its_memory_wherever_it_moves}

#include "calm/nn/param.hpp"

namespace calm {

/// Whether a model is held for inference or for training, which allocates a gradient for every trained value.
enum class model_mode { inference, training };

/// A model and its parameter memory, zero-initialised. Includes the values of a language model's frozen autoencoder. Do
/// not move it while an optimizer refers to its model.
template <class Model> struct owned_model {
    using memory = arena<typename space_of<Model>::backend>;  ///< on the model's backend
    memory values{"values"};                                  ///< memory of all values
    memory gradients{"gradients"};                            ///< memory of all gradients; empty for inference
    Model model;                                              ///< refers to both arenas

    /// A model for V = vocabulary ids. Throws errc::memory, or errc::usage if a model with bf16 weights is held for
    /// training.
    explicit owned_model(index_t vocabulary, model_mode purpose = model_mode::training) : model(vocabulary) {
        require(purpose == model_mode::inference || is_trainable<space_of<Model>>, errc::usage,
                "calm::owned_model: expected model_mode::inference for a model with bf16 weights, found "
                "model_mode::training; train it in float, then copy its parameters");
        allocate(model, values, purpose == model_mode::training ? &gradients : nullptr);
        if constexpr (requires { model.ae_model; }) allocate(model.ae_model, values, static_cast<memory*>(nullptr));
    }
};

}  // namespace calm
