// expect: calm::adamw: expected trainable weights, found a space with bf16 weights
#include "calm/train/loop.hpp"

constexpr calm::autoencoder_configuration chosen{.hidden_size = 8, .intermediate_size = 8, .latent_size = 4};
#ifdef CALM_SHOULD_FAIL
using space = calm::bf16_weights;
#else
using space = calm::space<>;
#endif

void train(calm::context<>& ctx, calm::autoencoder<chosen, space>& model) {
    train_autoencoder(
        ctx, model, [](std::span<calm::token_id>) {}, calm::autoencoder_recipe());
}
