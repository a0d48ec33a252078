// Training without calm::language_model: tokenizer, blocks, autoencoder and CALM one by one, in about twenty seconds.
#include <cstdio>

#include "calm/train.hpp"

constexpr calm::configuration<> mine{
    .autoencoder = {.patch_size = 4, .hidden_size = 64, .intermediate_size = 128, .latent_size = 32},
    .hidden_size = 96,
    .intermediate_size = 192,
    .num_hidden_layers = 2,
    .head = {.num_mlp_layers = 2}};

int main() {
    auto const documents = calm::stories(2000);  // or your own texts
    auto const tokenizer = calm::tokenizer::train(documents, 400);
    auto const text = calm::corpus_of(documents, tokenizer);
    auto const log = calm::every_steps(50, [](auto const& now) { std::printf("loss %.3f\n", now.loss); });
    calm::context<> ctx(1);  // random seed
    auto ae = calm::make_autoencoder<mine>(ctx, tokenizer.vocabulary_size());
    // Blocks of one patch: K = 4 tokens. for_seconds: seconds, peak learning rate, tokens per step.
    train_autoencoder(ctx, ae.model, calm::text_blocks(text, 4, 4), calm::for_seconds{10, 3e-3, 512}, log);
    auto lm = calm::make_calm<mine>(ctx, ae.model);
    // Blocks of 256 tokens, the block_tokens of a default recipe: 4 blocks per step.
    train_calm(ctx, lm.model, calm::text_blocks(text, 4, 256), calm::for_seconds{10, 2e-3, 1024}, log);
    std::puts(tokenizer.decode(generate(ctx, lm.model, tokenizer.encode("Mia was a"), tokenizer.specials(), {}).tokens)
                  .c_str());
}
