// ceiling: 1.8 x the rival, 0.7 GiB
// One training step of an autoencoder and of a language model: the models, their gradients and AdamW.

#include <vector>

#include "calm/model/calm.hpp"
#include "calm/train/optimizer.hpp"

constexpr calm::configuration<> small{.autoencoder = {.hidden_size = 64, .intermediate_size = 128, .latent_size = 16},
                                      .hidden_size = 64,
                                      .intermediate_size = 128,
                                      .num_hidden_layers = 2,
                                      .num_attention_heads = 4,
                                      .num_key_value_heads = 4,
                                      .head = {.num_mlp_layers = 2}};

int main() {
    calm::context<> ctx(1);
    calm::arena<> values("values");
    calm::arena<> gradients("gradients");
    calm::calm_model<small> model(256);
    calm::allocate(model.ae_model, values, &gradients);
    calm::allocate(model, values, &gradients);
    calm::initialise(ctx, model.ae_model);
    calm::initialise(ctx, model);
    std::vector<calm::token_id> const text(4 * 16 * 4, 65);
    calm::vector_view<calm::token_id const> const tokens(text.data(), calm::extents<calm::dyn>(4 * 16 * 4));

    calm::adamw learn_autoencoder(model.ae_model);
    auto const noise = model.ae_model.draw(ctx, tokens, 0.15);
    learn_autoencoder.step(ctx, 1e-3, model.ae_model.loss_and_gradient(ctx, tokens, noise, {}).loss);

    calm::adamw learn(model);
    learn.step(ctx, 1e-3, model.loss_and_gradient(ctx, tokens, 16, {.samples = 8, .targets = 32}));
}
