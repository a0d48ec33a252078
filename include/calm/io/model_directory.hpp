#pragma once
// Models to and from their directories: config.json, model.safetensors, and what lies beside them.

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/io/config_json.hpp"
#include "calm/io/replaced_directory.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"
#include "calm/io/weights.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"

namespace calm {

// Throws errc::config, naming every size that differs, unless a model of that configuration and vocabulary can be read.
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

namespace detail {

// What the file of a whole CALM holds.
template <class Model> auto whole_parameters(Model& model) {
    auto all = parameters_of(model);
    for (auto& p : frozen_parameters_of(model)) all.push_back(std::move(p));
    return all;
}

}  // namespace detail

// Reads the weights of a stored autoencoder to where the model lives, on any executor; it has memory (calm::allocate)
// and the vocabulary of the file. Throws errc::config naming every size that differs, and errc::model_file.
template <autoencoder_configuration C, class Space>
void load_autoencoder(context<typename Space::backend> const& ctx, stored_model const& from,
                      autoencoder<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    load_weights(ctx, *from.weights, tied_names_of_autoencoder, parameters_of(model));
}

// The same for a whole CALM, its autoencoder included.
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

// The same for an autoregressive model. Where it is tied, the files may hold its one table under both names;
// errc::model_file too where the two differ.
template <autoregressive_configuration C, class Space>
void load_autoregressive(context<typename Space::backend> const& ctx, stored_model const& from,
                         autoregressive_model<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    load_weights(ctx, *from.weights, detail::tied_names_of(from.description), parameters_of(model));
}

// The same of models of the host, which need no context.
template <autoencoder_configuration C, class T>
void load_autoencoder(stored_model const& from, autoencoder<C, space<cpu, T>>& model) {
    load_autoencoder(context<>(0, 1), from, model);
}
// Of a CALM.
template <model_configuration auto C, class T>
void load_calm(stored_model const& from, calm_model<C, space<cpu, T>>& model) {
    load_calm(context<>(0, 1), from, model);
}
// Of an autoregressive model.
template <autoregressive_configuration C, class T>
void load_autoregressive(stored_model const& from, autoregressive_model<C, space<cpu, T>>& model) {
    load_autoregressive(context<>(0, 1), from, model);
}

// The autoencoder's objective that a description states, for training on or measuring a loss; the published one where
// it states none.
inline autoencoder_objective autoencoder_objective_of(model_description const& d) {
    auto const ae = described_autoencoder(d);
    return {ae.ae_dropout, ae.kl_clamp, ae.kl_weight};
}

namespace detail {

// Writes what the description of an autoencoder or a CALM says of its autoencoder: sizes into d, the rest into `own`.
inline void describe(model_description& d, autoencoder_description& own, autoencoder_configuration const& c,
                     index_t vocabulary, autoencoder_objective const& o) {
    d.vocab_size = vocabulary;
    d.autoencoder.sizes = own.sizes = c;
    own.ae_dropout = o.dropout;
    own.kl_clamp = o.kl_clamp;
    own.kl_weight = o.kl_weight;
}

}  // namespace detail

// The config.json of a model to be saved; `ours` is our object in it: configuration's name, data, tokenizer.
template <autoencoder_configuration C>
model_description describe_autoencoder(index_t vocabulary, autoencoder_objective const& o, calm_description ours) {
    auto d = model_description::of(model_kind::autoencoder);
    detail::describe(d, d.autoencoder, C, vocabulary, o);
    d.calm = std::move(ours);
    return d;
}
// The same of a CALM, of whose autoencoder our object gets sizes and loss. Its head is known from then on (add_head).
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

// The same of an autoregressive model. Ids of other programs (bos_token_id and its like) are the caller's to set.
template <autoregressive_configuration C>
model_description describe_autoregressive(index_t vocabulary, calm_description ours) {
    auto d = model_description::of(model_kind::autoregressive);
    d.vocab_size = vocabulary;
    d.llama = C.llama;
    d.rope_theta = static_cast<double>(C.llama.rope_theta);
    d.tie_word_embeddings = C.tie_word_embeddings;
    ours.extras.omitted.insert({"posterior_std", "input"});  // a CALM's
    d.calm = std::move(ours);
    return d;
}

// The files of a directory besides its configuration and weights: names and bytes, e.g. "tokenizer.model".
using model_files = std::map<std::string, std::string>;

namespace detail {

template <class Backend, class Space, class Configuration>
void save_model(context<Backend> const& ctx, std::string const& directory, Configuration const& c, index_t vocabulary,
                model_description description, model_files const& beside, if_exists existing,
                std::vector<any_parameter<Space>> const& parameters) {
    static_assert(
        is_trainable<Space>,
        "calm::save_model: expected weights that are stored as they are updated: a model with weights in bf16 "
        "is not written again; write the one it was copied from, or convert its directory");
    using T = typename Space::storage;
    auto const sizes = described_sizes(description);
    require_match(c, vocabulary, stored_model{directory, description, sizes});
    description.torch_dtype = std::is_same_v<T, double> ? "float64" : "float32";
    replaced_directory target(directory, existing);
    for (auto const& [name, bytes] : beside) target.write(name, bytes);
    target.write(config_file, config_json_text(description));
    save_weights(ctx, target.path(weights_file), parameters);
    target.commit();
}

}  // namespace detail

// Writes a model directory as a whole: config.json, model.safetensors and the files beside them, from any executor. A
// directory that exists is refused with errc::storage, or with if_exists::replace replaced: what else it held stays,
// and a reader meets the old one or the new one. Throws errc::config where the description is not the model's, and
// errc::storage.
template <autoencoder_configuration C, class Space>
void save_autoencoder(context<typename Space::backend> const& ctx, std::string const& directory,
                      autoencoder<C, Space>& model, model_description const& description,
                      model_files const& beside = {}, if_exists existing = if_exists::refuse) {
    detail::save_model(ctx, directory, C, model.vocabulary(), description, beside, existing, parameters_of(model));
}

// The same for a CALM; its autoencoder goes into the same file, as ae_model.*.
template <model_configuration auto C, class Space>
void save_calm(context<typename Space::backend> const& ctx, std::string const& directory, calm_model<C, Space>& model,
               model_description const& description, model_files const& beside = {},
               if_exists existing = if_exists::refuse) {
    // A published config.json is silent about the autoencoder.
    auto expected = C;
    if (!description.calm || !description.calm->autoencoder)
        expected.autoencoder = detail::with_published(detail::described_sizes(description).autoencoder, C.autoencoder);
    detail::save_model(ctx, directory, expected, model.vocabulary(), description, beside, existing,
                       detail::whole_parameters(model));
}

// The same for an autoregressive model; one that is tied is written without lm_head.weight.
template <autoregressive_configuration C, class Space>
void save_autoregressive(context<typename Space::backend> const& ctx, std::string const& directory,
                         autoregressive_model<C, Space>& model, model_description const& description,
                         model_files const& beside = {}, if_exists existing = if_exists::refuse) {
    detail::save_model(ctx, directory, C, model.vocabulary(), description, beside, existing, parameters_of(model));
}

// The same of models of the host, which need no context.
template <autoencoder_configuration C, class T>
void save_autoencoder(std::string const& directory, autoencoder<C, space<cpu, T>>& model,
                      model_description const& description, model_files const& beside = {},
                      if_exists existing = if_exists::refuse) {
    save_autoencoder(context<>(0, 1), directory, model, description, beside, existing);
}
// Of a CALM.
template <model_configuration auto C, class T>
void save_calm(std::string const& directory, calm_model<C, space<cpu, T>>& model, model_description const& description,
               model_files const& beside = {}, if_exists existing = if_exists::refuse) {
    save_calm(context<>(0, 1), directory, model, description, beside, existing);
}
// Of an autoregressive model.
template <autoregressive_configuration C, class T>
void save_autoregressive(std::string const& directory, autoregressive_model<C, space<cpu, T>>& model,
                         model_description const& description, model_files const& beside = {},
                         if_exists existing = if_exists::refuse) {
    save_autoregressive(context<>(0, 1), directory, model, description, beside, existing);
}

}  // namespace calm
