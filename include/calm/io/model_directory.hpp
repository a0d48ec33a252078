#pragma once
// Models to and from their directories (spec 12): config.json, model.safetensors, and what lies beside them.

#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "calm/io/config_json.hpp"
#include "calm/io/replaced_directory.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/weights.hpp"
#include "calm/model/calm.hpp"

namespace calm {

namespace detail {

template <class Configuration>
void require_match(Configuration const& compiled, index_t vocabulary, stored_model const& stored) {
    auto lines = differences(compiled, stored);
    if (vocabulary != stored.vocabulary())
        lines.push_back("vocabulary: expected " + std::to_string(vocabulary) + ", found " +
                        std::to_string(stored.vocabulary()));
    if (lines.empty()) return;
    std::string all;
    for (auto const& line : lines) all += (all.empty() ? "" : "; ") + line;
    throw error(errc::config, stored.directory, "",
                "the model is not of the configuration at hand: " + all +
                    ". Use a configuration of the sizes that were found");
}

}  // namespace detail

// Reads the weights of a stored autoencoder; the model has memory (calm::allocate) and the vocabulary of the file.
// Throws errc::config naming every size that differs, and errc::model_file.
template <autoencoder_configuration C, class T, class Backend>
void load_autoencoder(stored_model const& from, autoencoder<C, T, Backend>& model) {
    detail::require_match(C, model.vocabulary(), from);
    load_weights(safetensors_file::open(from.path(weights_file)), tied_names_of_autoencoder, named_parameters(model));
}

// The same for a whole CALM, its autoencoder included.
template <configuration C, class T, class Backend, class Head>
void load_calm(stored_model const& from, calm_model<C, T, Backend, Head>& model) {
    detail::require_match(C, model.vocabulary(), from);
    auto const file = safetensors_file::open(from.path(weights_file));
    if (from.autoencoder_directory.empty()) {
        auto const frozen = [&](auto& visitor) { model.visit_autoencoder(visitor); };
        load_weights(file, tied_names_of_calm, named_parameters(model), frozen);
    } else {
        load_weights(file, tied_names_of_calm, named_parameters(model));
        load_autoencoder(read_model_description(from.autoencoder_directory), model.ae_model);
    }
}

// The objectives that a description states, for training on or measuring a loss.
inline autoencoder_objective autoencoder_objective_of(model_description const& d) {
    auto const ae = d.kind == model_kind::autoencoder ? d.autoencoder
                    : d.calm && d.calm->autoencoder   ? *d.calm->autoencoder
                                                      : autoencoder_description{};
    return {ae.ae_dropout, ae.kl_clamp, ae.kl_weight};
}
inline energy_objective energy_objective_of(model_description const& d) {
    return {d.num_samples, d.calm ? d.calm->num_target_samples : 100, d.beta};
}

// The config.json of a model to be saved; `ours` is our object in it: configuration's name, data, tokenizer.
template <autoencoder_configuration C>
model_description describe_autoencoder(index_t vocabulary, autoencoder_objective const& o, calm_description ours) {
    auto d = model_description::of(model_kind::autoencoder);
    d.vocab_size = vocabulary;
    d.patch_size = C.patch_size;
    d.latent_size = C.latent_size;
    d.autoencoder = {C.hidden_size, C.intermediate_size, C.num_encoder_layers, C.num_decoder_layers,
                     o.dropout,     o.kl_clamp,          o.kl_weight,          {}};
    d.calm = std::move(ours);
    return d;
}
template <configuration C>
model_description describe_calm(index_t vocabulary, energy_objective const& o, autoencoder_objective const& ae,
                                calm_description ours) {
    auto d = model_description::of(model_kind::calm, std::string(detail::name_of(C.head)));
    d.vocab_size = vocabulary;
    d.patch_size = C.autoencoder.patch_size;
    d.latent_size = C.autoencoder.latent_size;
    d.hidden_size = C.hidden_size;
    d.intermediate_size = C.intermediate_size;
    d.num_hidden_layers = C.num_hidden_layers;
    d.num_attention_heads = C.num_attention_heads;
    d.num_key_value_heads = C.num_key_value_heads;
    d.num_mlp_layers = C.num_mlp_layers;
    d.noise_size = C.noise_size;
    d.num_samples = o.samples;
    d.beta = o.beta;
    d.rope_theta = calm::rope_theta;
    ours.autoencoder = describe_autoencoder<C.autoencoder>(vocabulary, ae, {}).autoencoder;
    ours.num_target_samples = o.targets;
    d.calm = std::move(ours);
    return d;
}

// The files of a directory besides its configuration and weights: names and bytes, e.g. "tokenizer.model".
using model_files = std::map<std::string, std::string>;

namespace detail {

template <class T, class Configuration, class... Visits>
void save_model(std::string const& directory, Configuration const& c, index_t vocabulary, model_description description,
                model_files const& beside, if_exists existing, Visits const&... visits) {
    auto const sizes = described_sizes(description);
    require_match(c, vocabulary, stored_model{directory, description, sizes, {}});
    description.torch_dtype = std::is_same_v<T, double> ? "float64" : "float32";
    replaced_directory target(directory, existing);
    for (auto const& [name, bytes] : beside) target.write(name, bytes);
    target.write(config_file, config_json_text(description));
    save_weights(target.path(weights_file), visits...);
    target.commit();
}

}  // namespace detail

// Writes a model directory as a whole: config.json, model.safetensors and the files beside them. A directory that
// exists is refused with errc::storage, or with if_exists::replace replaced: what else it held stays, and a reader
// meets the old one or the new one. Throws errc::config where the description is not the model's, and errc::storage.
template <autoencoder_configuration C, class T, class Backend>
void save_autoencoder(std::string const& directory, autoencoder<C, T, Backend>& model,
                      model_description const& description, model_files const& beside = {},
                      if_exists existing = if_exists::refuse) {
    detail::save_model<T>(directory, C, model.vocabulary(), description, beside, existing, named_parameters(model));
}

// The same for a CALM; its autoencoder goes into the same file, as ae_model.*.
template <configuration C, class T, class Backend, class Head>
void save_calm(std::string const& directory, calm_model<C, T, Backend, Head>& model,
               model_description const& description, model_files const& beside = {},
               if_exists existing = if_exists::refuse) {
    // A published config.json is silent about the autoencoder.
    auto expected = C;
    if (!description.calm || !description.calm->autoencoder) {
        expected.autoencoder = detail::described_sizes(description).autoencoder;
        expected.autoencoder.patch_size = C.autoencoder.patch_size;
        expected.autoencoder.latent_size = C.autoencoder.latent_size;
    }
    auto const frozen = [&](auto& visitor) { model.visit_autoencoder(visitor); };
    detail::save_model<T>(directory, expected, model.vocabulary(), description, beside, existing,
                          named_parameters(model), frozen);
}

}  // namespace calm
