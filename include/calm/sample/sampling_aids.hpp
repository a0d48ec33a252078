#pragma once
// What makes sampling faster.

#include <memory>

#include "calm/model/autoencoder.hpp"
#include "calm/sample/separate_contexts.hpp"
#include "calm/tensor/graph.hpp"

namespace calm {

// Prepared once for a context and a model, whose weights then stay as they are. Texts are the same with it and without,
// but for what last bits of sums decide.
template <class Backend> struct sampling_aids {
    separate_contexts<Backend> separate;         // threads share draws instead of products, where that is faster
    std::shared_ptr<token_screen const> screen;  // of the autoencoder's vocabulary, or null
    repeated_work<Backend> drawing;              // of a device: draws of one patch after another

    // For samples of this model by this context.
    template <class Model> sampling_aids(context<Backend> const& ctx, Model const& model) : separate(ctx) {
        if constexpr (requires { model.ae_model; })
            screen = screen_if_faster<typename Model::scalar>(ctx, model.ae_model.embed_tokens.weight.read());
    }
};

}  // namespace calm
