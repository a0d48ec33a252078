#pragma once
/// \file
/// Reads and writes model directories: config.json, model.safetensors and the files next to them.
/// \shows{tests/io/model_directory_test.cpp,check_input_is_kept}

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/io/detail/config_json.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"
#include "calm/io/weights.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"

namespace calm {

/// Throws errc::config with every differing size unless a model of this configuration and vocabulary can load `stored`.
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
                "the model does not match the configuration: " + all + ". Use a configuration with the sizes found");
}

namespace detail {

// All parameters in the file of a complete CALM, including the frozen ones.
template <class Model> auto whole_parameters(Model& model) {
    auto all = parameters_of(model);
    for (auto& p : frozen_parameters_of(model)) all.push_back(std::move(p));
    return all;
}

}  // namespace detail

/// Loads the weights of a stored autoencoder into a model on any device. The model must have memory (calm::allocate)
/// and the vocabulary of the file. Throws errc::config with every differing size, errc::model_file, and errc::usage for
/// a model on the CPU without memory.
template <autoencoder_configuration C, class Space>
void load_autoencoder(context<typename Space::backend> const& ctx, stored_model const& from,
                      autoencoder<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    load_weights(ctx, *from.weights, tied_names_of_autoencoder, parameters_of(model));
}

/// Loads a whole CALM including its autoencoder. Both need memory: calm::allocate for each, or an owned_model. Throws
/// as load_autoencoder.
template <model_configuration auto C, class Space>
void load_calm(context<typename Space::backend> const& ctx, stored_model const& from, calm_model<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    if (from.autoencoder == nullptr) {
        load_weights(ctx, *from.weights, tied_names_of_calm, detail::whole_parameters(model));
    } else {
        load_weights(ctx, *from.weights, tied_names_of_calm, parameters_of(model));
        load_autoencoder(ctx, *from.autoencoder, model.ae_model);
    }
}

/// Loads an autoregressive model. If it is tied, the files may hold its one table under both names. Throws as
/// load_autoencoder, and errc::model_file if the two tables differ.
template <autoregressive_configuration C, class Space>
void load_autoregressive(context<typename Space::backend> const& ctx, stored_model const& from,
                         autoregressive_model<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    load_weights(ctx, *from.weights, detail::tied_names_of(from.description), parameters_of(model));
}

/// Overloads for models on the host, without a context.
template <autoencoder_configuration C, class T>
void load_autoencoder(stored_model const& from, autoencoder<C, space<cpu, T>>& model) {
    load_autoencoder(context<>(0, 1), from, model);
}
/// Loads a CALM on the host.
template <model_configuration auto C, class T>
void load_calm(stored_model const& from, calm_model<C, space<cpu, T>>& model) {
    load_calm(context<>(0, 1), from, model);
}
/// Loads an autoregressive model on the host.
template <autoregressive_configuration C, class T>
void load_autoregressive(stored_model const& from, autoregressive_model<C, space<cpu, T>>& model) {
    load_autoregressive(context<>(0, 1), from, model);
}

/// The loss configuration of the autoencoder as described, for training or evaluation; the published one by default.
inline autoencoder_objective autoencoder_objective_of(model_description const& d) {
    auto const ae = described_autoencoder(d);
    return {ae.ae_dropout, ae.kl_clamp, ae.kl_weight};
}

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
model_description describe_autoencoder(index_t vocabulary, autoencoder_objective const& o, calm_description ours) {
    auto d = model_description::of(model_kind::autoencoder);
    detail::describe(d, d.autoencoder, C, vocabulary, o);
    d.calm = std::move(ours);
    return d;
}
/// Describes a CALM; our object receives sizes and loss of its autoencoder. Registers its head (add_head).
template <model_configuration auto C>
model_description describe_calm(index_t vocabulary, typename decltype(C.head)::objective const& o,
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
template <autoregressive_configuration C>
model_description describe_autoregressive(index_t vocabulary, calm_description ours) {
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

/// The files of a directory besides configuration and weights: names and bytes, e.g. "tokenizer.model".
using model_files = std::map<std::string, std::string>;

namespace detail {

template <class Backend, class Space, class Configuration>
void save_model(context<Backend> const& ctx, std::string const& directory, Configuration const& c, index_t vocabulary,
                model_description description, model_files const& extra_files, if_exists existing,
                std::vector<any_parameter<Space>> const& parameters) {
    static_assert(is_trainable<Space>,
                  "calm::save_model: expected a trainable model: one with bf16 weights is only for inference; save the "
                  "model that it was copied from, or convert its directory");
    using T = typename Space::scalar;
    auto const sizes = described_sizes(description);
    require_match(c, vocabulary, stored_model{directory, description, sizes});
    description.torch_dtype = std::is_same_v<T, double> ? "float64" : "float32";
    replaced_directory target(directory, existing);
    target.leave_out(bigram_file);  // of the text of another model, unless it is in extra_files
    for (auto const& [name, bytes] : extra_files) target.write(name, bytes);
    target.write(config_file, config_json_text(description));
    save_weights(ctx, target.path(weights_file), parameters);
    target.commit();
}

}  // namespace detail

/// Writes a model directory atomically: config.json, model.safetensors and the additional files, from any device. An
/// existing directory is refused with errc::storage or, with if_exists::replace, replaced: its other files stay, except
/// the counts of tokens, and a reader sees either the old or the new one. Throws errc::config if the description does
/// not match the model, and errc::storage.
template <autoencoder_configuration C, class Space>
void save_autoencoder(context<typename Space::backend> const& ctx, std::string const& directory,
                      autoencoder<C, Space>& model, model_description const& description,
                      model_files const& extra_files = {}, if_exists existing = if_exists::refuse) {
    detail::save_model(ctx, directory, C, model.vocabulary(), description, extra_files, existing, parameters_of(model));
}

/// Saves a CALM; its autoencoder is in the same file, as ae_model.*.
template <model_configuration auto C, class Space>
void save_calm(context<typename Space::backend> const& ctx, std::string const& directory, calm_model<C, Space>& model,
               model_description const& description, model_files const& extra_files = {},
               if_exists existing = if_exists::refuse) {
    // A published config.json does not describe the autoencoder.
    auto expected = C;
    if (!description.calm || !description.calm->autoencoder)
        expected.autoencoder = detail::with_published(detail::described_sizes(description).autoencoder, C.autoencoder);
    detail::save_model(ctx, directory, expected, model.vocabulary(), description, extra_files, existing,
                       detail::whole_parameters(model));
}

/// Saves an autoregressive model; a tied one is written without lm_head.weight.
template <autoregressive_configuration C, class Space>
void save_autoregressive(context<typename Space::backend> const& ctx, std::string const& directory,
                         autoregressive_model<C, Space>& model, model_description const& description,
                         model_files const& extra_files = {}, if_exists existing = if_exists::refuse) {
    detail::save_model(ctx, directory, C, model.vocabulary(), description, extra_files, existing, parameters_of(model));
}

/// Overloads for models on the host, without a context.
template <autoencoder_configuration C, class T>
void save_autoencoder(std::string const& directory, autoencoder<C, space<cpu, T>>& model,
                      model_description const& description, model_files const& extra_files = {},
                      if_exists existing = if_exists::refuse) {
    save_autoencoder(context<>(0, 1), directory, model, description, extra_files, existing);
}
/// Saves a CALM on the host.
template <model_configuration auto C, class T>
void save_calm(std::string const& directory, calm_model<C, space<cpu, T>>& model, model_description const& description,
               model_files const& extra_files = {}, if_exists existing = if_exists::refuse) {
    save_calm(context<>(0, 1), directory, model, description, extra_files, existing);
}
/// Saves an autoregressive model on the host.
template <autoregressive_configuration C, class T>
void save_autoregressive(std::string const& directory, autoregressive_model<C, space<cpu, T>>& model,
                         model_description const& description, model_files const& extra_files = {},
                         if_exists existing = if_exists::refuse) {
    save_autoregressive(context<>(0, 1), directory, model, description, extra_files, existing);
}

}  // namespace calm
