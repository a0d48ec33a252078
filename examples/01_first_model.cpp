// Trains a language model on stories, saves it, loads it and generates a text.
#include <cstdio>

#include "calm/language_model.hpp"

// Custom sizes; calm::presets has others.
constexpr calm::configuration<> mine{
    .autoencoder = {.patch_size = 4, .hidden_size = 64, .intermediate_size = 128, .latent_size = 32},
    .hidden_size = 96,
    .intermediate_size = 192,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 4,
    .head = {.num_mlp_layers = 2}};

int main() {
    calm::language_model<mine> model(calm::stories(2000), {.vocabulary = 400});  // or calm::read_text("my.jsonl")
    auto const log = [](calm::training_report const& now) { std::puts(to_string(now).c_str()); };
    model.train({.autoencoder_steps = 200, .steps = 200, .log = log});  // or {.minutes = 20, .log = log}
    model.save("my-model");                                             // `calm generate my-model` opens it, too
    auto const made = calm::load<mine>("my-model").generate("Mia was a", {.temperature = 0.5});
    std::printf("Mia was a%s\n(%zu tokens)\n", made.text.c_str(), made.tokens.size());
}
