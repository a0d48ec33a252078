#include "compiled_configuration.hpp"

namespace {

constexpr calm::autoregressive_configuration mine{.llama = {.hidden_size = 192,
                                                            .intermediate_size = 512,
                                                            .num_hidden_layers = 4,
                                                            .num_attention_heads = 6,
                                                            .num_key_value_heads = 6},
                                                  .tie_word_embeddings = true};

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoregressive.steps = 3000;  // learning_rate, warmup, sequences, level = {.patch = 4, .share = 0.5}, ...
    return r;
}

bool const registered = calm::apps::compile_configuration<mine>("mine", defaults());

}  // namespace
