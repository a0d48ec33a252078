#pragma once
/// \file
/// A configuration is a constexpr value that serves as the template argument of the models: patch size K, latent size
/// L, widths, depths and head. Vocabulary, batch size, length, N, M, beta and learning rates are run-time values. The
/// model's space (tensor/core/space.hpp) determines device and number types.
/// \shows{examples/08_configuration.cpp}

#include <string_view>
#include <type_traits>
#include <utility>

#include "calm/model/detail/limits.hpp"
#include "calm/model/head.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/ops/rotary_angles.hpp"

namespace calm {

/// The default head, CALM's energy head (heads/energy.hpp).
struct energy;

namespace detail {
// A size of at least 1 that config.json must contain.
constexpr number_field size_field(std::string_view key, std::string_view what, index_t most) {
    return {.key = key, .what = what, .least = 1, .most = static_cast<double>(most), .required = true};
}
// The field without its place in a published config.json.
constexpr number_field unpublished(number_field field) {
    field.published = false;
    return field;
}
}  // namespace detail

/// What the backbone reads for each patch: its tokens, its latent vector, or both. In CALM's ablation tokens are best.
enum class input_kind { tokens, latents, both };

/// The autoencoder's sizes, named as in the published config.json; all positive.
struct autoencoder_configuration {
    index_t vocab_size = 32000;        ///< default if no tokenizer is given
    index_t patch_size = 4;            ///< K, tokens per patch
    index_t hidden_size = 512;         ///< D, width of the hidden states
    index_t intermediate_size = 1280;  ///< inner width of SwiGLU
    index_t num_encoder_layers = 2;    ///< even: half on tokens, half on patches
    index_t num_decoder_layers = 2;    ///< even: half on patches, half on tokens
    index_t latent_size = 128;         ///< L, dimensions of a latent vector

    /// Visits every size except vocab_size, in file order. `published` marks those in the config.json of a published
    /// CALM.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        using detail::size_field, detail::unpublished;
        visitor(size_field("patch_size", "K, tokens per patch", limits::patch_size), self.patch_size);
        visitor(size_field("latent_size", "L, latent", limits::width), self.latent_size);
        visitor(unpublished(size_field("hidden_size", "hidden", limits::width)), self.hidden_size);
        visitor(unpublished(size_field("intermediate_size", "intermediate", limits::width)), self.intermediate_size);
        visitor(unpublished(size_field("num_encoder_layers", "layers of the encoder", limits::layers)),
                self.num_encoder_layers);
        visitor(unpublished(size_field("num_decoder_layers", "layers of the decoder", limits::layers)),
                self.num_decoder_layers);
    }
    friend constexpr bool operator==(autoencoder_configuration const&, autoencoder_configuration const&) = default;
};

/// Autoencoder, backbone and head, named as in the published config.json; all sizes positive. docs/configurations.md
/// gives advice. A different head is a different type: configuration<flow>.
template <class Head = energy> struct configuration {
    autoencoder_configuration autoencoder;  ///< holds patch size K and latent size L
    index_t hidden_size = 768;              ///< D of backbone and head
    index_t intermediate_size = 2048;       ///< inner width of the blocks' SwiGLU
    index_t num_hidden_layers = 12;         ///< blocks of the backbone
    index_t num_attention_heads = 12;       ///< divides hidden_size into even heads
    index_t num_key_value_heads = 12;       ///< divides num_attention_heads
    Head head = {};                         ///< its type selects the head, its members are the sizes
    input_kind input = input_kind::tokens;  ///< what the backbone reads for each patch

    friend bool operator==(configuration const&, configuration const&) = default;  ///< constexpr if the head's is
};

/// The sizes of a Llama stack, named as in the published config.json; all positive.
struct llama_sizes {
    index_t hidden_size = 768;         ///< D, width of the hidden states
    index_t intermediate_size = 2048;  ///< inner width of the blocks' SwiGLU
    index_t num_hidden_layers = 12;    ///< blocks
    index_t num_attention_heads = 12;  ///< divides hidden_size into even heads
    index_t num_key_value_heads = 12;  ///< divides num_attention_heads
    index_t head_dim = 0;              ///< elements per head, even; 0: hidden_size / num_attention_heads
    double rope_theta = 10'000;        ///< base of the rotary angles
    rotary_scaling rope_scaling = {};  ///< of the rotary angles
    double rms_norm_eps = 1e-6;        ///< added under the root of every norm

    /// The elements per head.
    [[nodiscard]] constexpr index_t head_size() const {
        return head_dim > 0 ? head_dim : hidden_size / num_attention_heads;
    }

    /// Visits every size that each file states, in file order.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        using detail::size_field;
        visitor(size_field("hidden_size", "D, hidden", limits::width), self.hidden_size);
        visitor(size_field("intermediate_size", "intermediate", limits::width), self.intermediate_size);
        visitor(size_field("num_hidden_layers", "layers", limits::layers), self.num_hidden_layers);
        visitor(size_field("num_attention_heads", "heads", limits::width), self.num_attention_heads);
        auto last = size_field("num_key_value_heads", "heads of keys and values", limits::width);
        last.required = false;
        visitor(last, self.num_key_value_heads);
    }
    friend constexpr bool operator==(llama_sizes const&, llama_sizes const&) = default;
};

/// The autoregressive baseline: the Llama stack on tokens.
struct autoregressive_configuration {
    llama_sizes llama;                 ///< its hidden_size is D
    bool tie_word_embeddings = false;  ///< whether embeddings and output projection share a table
    index_t vocab_size = 32000;        ///< default if no tokenizer is given

    friend constexpr bool operator==(autoregressive_configuration const&,
                                     autoregressive_configuration const&) = default;
};

/// The Llama sizes of a CALM. Its autoregressive baseline is {llama_sizes_of(C)}.
template <class Head> constexpr llama_sizes llama_sizes_of(configuration<Head> const& c) {
    return {c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads};
}

namespace detail {
template <class T> inline constexpr bool is_configuration = false;
template <class Head> inline constexpr bool is_configuration<configuration<Head>> = true;
}  // namespace detail

/// A configuration with any head: models are templates of `model_configuration auto C`.
template <class T>
concept model_configuration = detail::is_configuration<std::remove_cv_t<T>>;

/// Assembles a configuration from its parts. Only the visited sizes of the Llama stack are used: the others are the
/// same in every backbone.
template <class Head>
constexpr configuration<Head> configuration_from(autoencoder_configuration const& autoencoder, llama_sizes const& c,
                                                 Head head, input_kind input) {
    return {autoencoder,           c.hidden_size,         c.intermediate_size, c.num_hidden_layers,
            c.num_attention_heads, c.num_key_value_heads, std::move(head),     input};
}

/// A copy of the configuration with a different head.
template <class Head, class Former> constexpr configuration<Head> with_head(configuration<Former> const& c, Head head) {
    return configuration_from(c.autoencoder, llama_sizes_of(c), std::move(head), c.input);
}
/// A copy with a type-erased head, as for a stored model.
template <class Head> configuration<any_head> with_any_head(configuration<Head> const& c) {
    return with_head(c, any_head(c.head));
}

/// Named checks of a configuration, for static_assert in the models.
namespace check {
/// Both encoder and decoder.
constexpr bool layers_are_even(autoencoder_configuration const& c) {
    return c.num_encoder_layers % 2 == 0 && c.num_decoder_layers % 2 == 0;
}
/// Every size of an autoencoder, stack or head is within its field's range.
template <class Sizes> constexpr bool sizes_are_allowed(Sizes const& sizes) {
    bool all = true;
    Sizes::visit_fields(sizes, [&](number_field const& field, auto const& member) {
        all = all && field_value{field, static_cast<double>(member)}.is_allowed();
    });
    return all;
}
/// All three parts of a configuration.
template <class Head> constexpr bool sizes_are_allowed(configuration<Head> const& c) {
    return sizes_are_allowed(c.autoencoder) && sizes_are_allowed(llama_sizes_of(c)) && sizes_are_allowed(c.head);
}
/// num_attention_heads divides hidden_size. Sizes: llama_sizes or a configuration.
template <class Sizes> constexpr bool heads_divide_width(Sizes const& c) {
    return c.hidden_size % c.num_attention_heads == 0;
}
/// num_key_value_heads divides num_attention_heads.
template <class Sizes> constexpr bool key_value_heads_divide_heads(Sizes const& c) {
    return c.num_attention_heads % c.num_key_value_heads == 0;
}
/// rope_theta and factor are positive, rms_norm_eps is not negative, and high_freq_factor exceeds low_freq_factor.
constexpr bool numbers_are_allowed(llama_sizes const& c) {
    auto const& scaling = c.rope_scaling;
    return c.rope_theta > 0 && c.rms_norm_eps >= 0 && scaling.factor > 0 &&
           scaling.high_freq_factor > scaling.low_freq_factor;
}
/// The size of a head is even, as rotary embeddings require.
constexpr bool head_size_is_even(llama_sizes const& c) {
    return c.head_size() % 2 == 0;
}
/// The same of a backbone.
template <class Head> constexpr bool head_size_is_even(configuration<Head> const& c) {
    return head_size_is_even(llama_sizes_of(c));
}
}  // namespace check

}  // namespace calm
