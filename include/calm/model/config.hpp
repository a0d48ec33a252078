#pragma once
// A configuration is one constexpr value and a template argument of the models: patch size K, latent size L, widths,
// depths, head and precision. Vocabulary, batch, length, N, M, beta and rates are run-time values and stay out of it.

#include "calm/tensor/extents.hpp"

namespace calm {

enum class head_kind { energy };
enum class precision { fp32, fp64 };
// What the backbone reads of a patch: its tokens, its latent vector, or both (CALM's ablation: tokens are the best).
enum class input_kind { tokens, latents, both };

// Names and meanings of the published config.json (spec 3).
struct autoencoder_configuration {
    index_t vocab_size = 32000;  // the default where no tokenizer decides
    index_t patch_size = 4;      // K
    index_t hidden_size = 512;
    index_t intermediate_size = 1280;
    index_t num_encoder_layers = 2;
    index_t num_decoder_layers = 2;
    index_t latent_size = 128;  // L

    friend constexpr bool operator==(autoencoder_configuration const&, autoencoder_configuration const&) = default;
};

// Spec 4 and 5.
struct configuration {
    autoencoder_configuration autoencoder;
    index_t hidden_size = 768;
    index_t intermediate_size = 2048;
    index_t num_hidden_layers = 12;
    index_t num_attention_heads = 12;
    index_t num_key_value_heads = 12;
    index_t num_mlp_layers = 4;
    index_t noise_size = 64;
    head_kind head = head_kind::energy;
    calm::precision precision = calm::precision::fp32;
    input_kind input = input_kind::tokens;

    friend constexpr bool operator==(configuration const&, configuration const&) = default;
};

// The named checks of a configuration: models assert each with a sentence.
namespace check {
constexpr bool layers_are_even(autoencoder_configuration const& c) {
    return c.num_encoder_layers % 2 == 0 && c.num_decoder_layers % 2 == 0;
}
constexpr bool sizes_are_positive(autoencoder_configuration const& c) {
    return c.patch_size > 0 && c.hidden_size > 0 && c.intermediate_size > 0 && c.latent_size > 0 &&
           c.num_encoder_layers > 0 && c.num_decoder_layers > 0;
}
constexpr bool sizes_are_positive(configuration const& c) {
    return sizes_are_positive(c.autoencoder) && c.hidden_size > 0 && c.intermediate_size > 0 &&
           c.num_hidden_layers > 0 && c.num_attention_heads > 0 && c.num_key_value_heads > 0 && c.num_mlp_layers > 0 &&
           c.noise_size > 0;
}
constexpr bool heads_divide_width(configuration const& c) {
    return c.hidden_size % c.num_attention_heads == 0;
}
constexpr bool key_value_heads_divide_heads(configuration const& c) {
    return c.num_attention_heads % c.num_key_value_heads == 0;
}
constexpr bool head_size_is_even(configuration const& c) {
    return c.hidden_size / c.num_attention_heads % 2 == 0;
}
}  // namespace check

namespace detail {
template <precision> struct scalar_of { using type = float; };
template <> struct scalar_of<precision::fp64> { using type = double; };
}  // namespace detail

template <configuration C> using scalar_of = typename detail::scalar_of<C.precision>::type;

}  // namespace calm
