#pragma once
// A model together with the memory of its parameters.

#include "calm/nn/param.hpp"

namespace calm {

// What a model is held for: training needs a gradient beside every value that is trained.
enum class held_for { use, training };

// A model and the memory of its parameters, all zero at first; the frozen autoencoder of a language model has its
// values here too. It may be moved, but not while an optimizer knows its model.
template <class Model> struct resident {
    using memory = arena<typename space_of<Model>::backend>;  // of the model's backend
    memory values{"values"};                                  // the memory of every value
    memory gradients{"gradients"};                            // of every gradient; empty for use alone
    Model model;                                              // refers to both arenas

    // V tokens of vocabulary. Throws errc::memory, and errc::usage where a model whose weights are not stored as they
    // are updated is held for training.
    explicit resident(index_t vocabulary, held_for purpose = held_for::training) : model(vocabulary) {
        require(purpose == held_for::use || is_trainable<space_of<Model>>, errc::usage,
                "calm::resident: expected a model with weights in bf16 to be held for use, found held_for::training; "
                "train it in float, then copy its parameters");
        allocate(model, values, purpose == held_for::training ? &gradients : nullptr);
        if constexpr (requires { model.ae_model; }) allocate(model.ae_model, values, static_cast<memory*>(nullptr));
    }
};

}  // namespace calm
