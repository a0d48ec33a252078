#pragma once
/// \file
/// Second names under which some files hold a tensor twice.
/// \shows{tests/io/weights_test.cpp,bf16_weights_are_written_unchanged}

#include <array>
#include <span>
#include <string_view>

#include "calm/io/model_description.hpp"

namespace calm {

/// An alias of a tensor that some files hold twice. A name that ends in '.' is a prefix.
struct tensor_alias {
    std::string_view name;     ///< the alias
    std::string_view same_as;  ///< the original name
};
/// Aliases in a published autoencoder.
inline constexpr std::array<tensor_alias, 1> tied_names_of_autoencoder{
    {{"decoder.lm_head_weight", "encoder.embed_tokens.weight"}}};
/// Aliases in a published CALM.
inline constexpr std::array<tensor_alias, 2> tied_names_of_calm{
    {{"ae_model.decoder.lm_head_weight", "ae_model.encoder.embed_tokens.weight"},
     {"generative_head.", "mlp_generator."}}};
/// Aliases in an autoregressive model with tie_word_embeddings in its config.json.
inline constexpr std::array<tensor_alias, 1> tied_names_of_tied_autoregressive{
    {{"lm_head.weight", "model.embed_tokens.weight"}}};

namespace detail {

// The aliases that the files of a model may contain.
inline std::span<tensor_alias const> tied_names_of(model_description const& d) {
    if (d.kind == model_kind::autoencoder) return tied_names_of_autoencoder;
    if (d.kind == model_kind::calm) return tied_names_of_calm;
    if (d.tie_word_embeddings) return tied_names_of_tied_autoregressive;
    return {};
}

}  // namespace detail

}  // namespace calm
