#pragma once
/// \file
/// Prepared resources that make sampling faster.
/// \shows{tests/sample/generate_test.cpp,a_sampler_cache_serves_every_patch_of_a_text}

#include <memory>

#include "calm/model/autoencoder.hpp"
#include "calm/sample/detail/thread_contexts.hpp"
#include "calm/tensor/detail/device/graph.hpp"

namespace calm {

/// Prepared once for a context and a model whose weights stay fixed. Texts are the same with and without it, except
/// where the last bits of sums decide.
template <class Backend> struct sampler_cache {
    thread_contexts<Backend> separate;           ///< for threads that draw separately, where that is faster
    std::shared_ptr<token_screen const> screen;  ///< for the autoencoder's vocabulary, or null
    captured_graph<Backend> drawing;             ///< on a device: rounds of draws as captured graphs

    /// For samples of this model in this context.
    template <class Model> sampler_cache(context<Backend> const& ctx, Model const& model) : separate(ctx) {
        if constexpr (requires { model.ae_model; })
            screen = screen_if_faster<typename Model::scalar>(ctx, model.ae_model.embed_tokens.weight.read());
    }
};

}  // namespace calm
