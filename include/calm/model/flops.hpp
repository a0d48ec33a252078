#pragma once
/// \file
/// FLOPs of the matrix products, computed from a configuration: per patch, per token of an autoregressive model, or per
/// update of Muon. Norms, activations and random numbers are not counted. Divide counts per patch by K for counts per
/// token.
/// \shows{tests/model/flops_test.cpp,the_parts_of_calm_m_have_the_published_flops}

#include <algorithm>
#include <cmath>

#include "calm/model/config.hpp"

namespace calm {

/// FLOP counts; a multiplication and an addition count as 2.
namespace flops {

/// A product (m, k) (k, n).
constexpr double product(index_t m, index_t k, index_t n) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
}

/// Expected number of unique ids among `tokens` tokens if all V ids are equally likely, an upper bound for any text.
inline double distinct_ids(double tokens, index_t V) {
    auto const all = static_cast<double>(V);
    return all * -std::expm1(tokens * std::log1p(-1 / all));
}

/// \name Forward, per patch
/// \{

/// `distinct`: number of ids per patch that the token half runs for; K if it runs for every token.
constexpr double encoder(autoencoder_configuration const& c, double distinct) {
    double const layers =
        static_cast<double>(c.num_encoder_layers / 2) * product(3, c.hidden_size, c.intermediate_size);
    return layers * (distinct + 1) + product(1, c.patch_size * c.hidden_size, c.hidden_size) +
           product(1, c.hidden_size, 2 * c.latent_size);
}
/// With the token half running for all K tokens.
constexpr double encoder(autoencoder_configuration const& c) {
    return encoder(c, static_cast<double>(c.patch_size));
}
/// For `patches` patches together, with the token half running once per unique id.
inline double encoder_at_once(autoencoder_configuration const& c, index_t V, index_t patches) {
    return encoder(c, distinct_ids(static_cast<double>(patches * c.patch_size), V) / static_cast<double>(patches));
}
/// Includes the product with a vocabulary of V.
constexpr double decoder(autoencoder_configuration const& c, index_t V) {
    return product(1, c.latent_size, c.hidden_size) +
           product(c.num_decoder_layers / 2 * (c.patch_size + 1), c.hidden_size, 3 * c.intermediate_size) +
           product(1, c.hidden_size, c.patch_size * c.hidden_size) + product(c.patch_size, c.hidden_size, V);
}
/// A Llama stack, per position. `attended`: mean number of positions attended to.
constexpr double llama(llama_sizes const& c, double attended) {
    index_t const D = c.hidden_size;
    index_t const q = c.num_attention_heads * c.head_size(), kv = c.num_key_value_heads * c.head_size();
    double const layer =
        product(2, D, q) + product(2, D, kv) + 2 * attended * product(1, q, 1) + product(3, D, c.intermediate_size);
    return static_cast<double>(c.num_hidden_layers) * layer;
}
/// Without the encoder, which encodes every patch again if latents are read; `attended` as above.
template <class Head> constexpr double backbone(configuration<Head> const& c, double attended) {
    index_t const D = c.hidden_size;
    double const tokens = product(1, c.autoencoder.patch_size * D, 2 * D) + product(1, 2 * D, D);
    double const latents = product(1, c.autoencoder.latent_size, 2 * D) + product(1, 2 * D, D);
    return (c.input != input_kind::latents ? tokens : 0) + (c.input != input_kind::tokens ? latents : 0) +
           llama(llama_sizes_of(c), attended);
}
/// The head (CALM, appendix on the generative head).
template <class Head> head_flops head(configuration<Head> const& c, index_t V) {
    constexpr index_t many = 2048;  // patches that a head encodes together
    return c.head.flops({.D = c.hidden_size,
                         .L = c.autoencoder.latent_size,
                         .K = c.autoencoder.patch_size,
                         .V = V,
                         .table_width = c.autoencoder.hidden_size,
                         .encoding = encoder(c.autoencoder),
                         .encoding_at_once = encoder_at_once(c.autoencoder, V, many)});
}
/// With the vocabulary size of the configuration.
template <class Head> head_flops head(configuration<Head> const& c) {
    return head(c, c.autoencoder.vocab_size);
}

/// An autoregressive model, per token, including the product with a vocabulary of V; `attended` as above.
constexpr double autoregressive(llama_sizes const& c, index_t V, double attended) {
    return llama(c, attended) + product(1, c.hidden_size, V);
}

/// \}

/// \name A training step, per patch: backward costs twice as much as forward
/// \{

/// An autoencoder, on `patches` patches together.
inline double train_autoencoder(autoencoder_configuration const& c, index_t V, index_t patches) {
    return 3 * (encoder_at_once(c, V, patches) + decoder(c, V));
}
/// `sequences` sequences of P positions together, with N samples per position; the frozen encoder runs forward only.
template <class Head>
double train_calm(configuration<Head> const& c, index_t V, index_t sequences, index_t P, index_t N) {
    auto const of_head = head(c, V);
    return (c.input != input_kind::tokens ? 2 : 1) * encoder_at_once(c.autoencoder, V, sequences * P) +
           3 * (backbone(c, static_cast<double>(P + 1) / 2) + of_head.shared + of_head.scored +
                static_cast<double>(N) * of_head.trained);
}

/// Per token, for blocks of `block` tokens. Every patch of a block except the last has a loss.
template <class Head>
double train_calm_per_token(configuration<Head> const& c, index_t V, index_t sequences, index_t block, index_t N) {
    index_t const P = block / c.autoencoder.patch_size;
    return train_calm(c, V, sequences, P - 1, N) * static_cast<double>(P - 1) / static_cast<double>(block);
}

/// An autoregressive model: every token of a block except the last has a loss. Patch-level training multiplies this by
/// its `cost` (train/recipe.hpp).
constexpr double train_autoregressive(llama_sizes const& c, index_t V, index_t block) {
    auto const positions = static_cast<double>(block - 1);
    return 3 * autoregressive(c, V, (positions + 1) / 2) * positions / static_cast<double>(block);
}

/// \}

/// \name An update by Muon (train/detail/muon.hpp), excluding the training step before it
/// \{

/// Number of degree-5 polynomials applied to orthogonalise each matrix.
inline constexpr index_t polynomials_of_muon = 3;

/// One matrix (R, C). With n the smaller size and m the larger, each polynomial takes the products (n, m) (m, n), its
/// square, and (n, n) (n, m).
constexpr double muon(index_t rows, index_t columns) {
    index_t const n = std::min(rows, columns), m = std::max(rows, columns);
    return static_cast<double>(polynomials_of_muon) * (product(n, m, n) + product(n, n, n) + product(n, n, m));
}
/// All parameters of a model that Muon updates (nn/param.hpp); only shapes are read.
template <class Parameters> double muon(Parameters const& parameters) {
    double all = 0;
    for (auto const& p : parameters)
        if (p.is_hidden) all += muon(p.shape[0], p.shape[1]);
    return all;
}

/// \}

/// \name Generation
/// \{

/// A CALM, per patch with `draws` draws, after `past` positions.
template <class Head> double generate(configuration<Head> const& c, index_t V, double past, double draws) {
    auto const of_head = head(c, V);
    return backbone(c, past + 1) + of_head.shared + draws * (of_head.drawn + decoder(c.autoencoder, V));
}
/// An autoregressive model, per token after `past` tokens.
constexpr double generate_autoregressive(llama_sizes const& c, index_t V, double past) {
    return autoregressive(c, V, past + 1);
}

/// \}

}  // namespace flops

}  // namespace calm
