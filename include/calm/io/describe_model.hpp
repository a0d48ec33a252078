#pragma once
/// \file
/// The config.json of a compiled model.
/// \shows{examples/13_saved_model.cpp,main}

#include <type_traits>
#include <utility>

#include "calm/io/model_description.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"

namespace calm {

namespace detail {

// Describes the autoencoder of an autoencoder or CALM: sizes into `d`, the rest into `own`.
inline void describe(model_description& d, autoencoder_description& own, autoencoder_configuration const& c,
                     index_t vocabulary, autoencoder_objective const& o) {
    d.vocab_size = vocabulary;
    d.autoencoder.sizes = own.sizes = c;
    own.ae_dropout = o.dropout;
    own.kl_clamp = o.kl_clamp;
    own.kl_weight = o.kl_weight;
}

}  // namespace detail

/// The config.json of a model to be saved; `ours` is our object in it: name of the configuration, data, tokenizer. The
/// ids of special tokens are set by set_special_ids (runs/model_tokenizer.hpp).
template <autoencoder_configuration C>
model_description describe_model(index_t vocabulary, autoencoder_objective const& o, calm_description ours) {
    auto d = model_description::of(model_kind::autoencoder);
    detail::describe(d, d.autoencoder, C, vocabulary, o);
    d.calm = std::move(ours);
    return d;
}
/// Describes a CALM; our object receives sizes and loss of its autoencoder. Registers its head (add_head).
template <model_configuration auto C>
model_description describe_model(index_t vocabulary, typename decltype(C.head)::objective const& o,
                                 autoencoder_objective const& ae, calm_description ours) {
    add_head<std::remove_cvref_t<decltype(C.head)>>();
    auto const sizes = with_any_head(C);
    auto d = model_description::of(model_kind::calm, sizes.head.name());
    detail::describe(d, ours.autoencoder.emplace(), C.autoencoder, vocabulary, ae);
    d.llama = llama_sizes_of(C);
    d.head = sizes.head;
    d.rope_theta = calm::rope_theta;
    d.objective.clear();
    ours.of_head.clear();
    for (auto const& number : field_values::of(o))
        (number.field.published ? d.objective : ours.of_head).push_back(number);
    ours.input = detail::name_of(C.input);
    d.calm = std::move(ours);
    return d;
}

/// Describes an autoregressive model.
template <autoregressive_configuration C> model_description describe_model(index_t vocabulary, calm_description ours) {
    auto d = model_description::of(model_kind::autoregressive);
    d.vocab_size = vocabulary;
    d.llama = C.llama;
    d.rope_theta = C.llama.rope_theta;
    d.rms_norm_eps = C.llama.rms_norm_eps;
    d.tie_word_embeddings = C.tie_word_embeddings;
    ours.extras.omitted.insert({"posterior_std", "input"});  // a CALM's
    d.calm = std::move(ours);
    return d;
}

}  // namespace calm
