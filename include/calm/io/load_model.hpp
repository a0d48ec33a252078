#pragma once
/// \file
/// Loads the weights of a stored model into a compiled one.
/// \shows{tests/io/model_directory_test.cpp,check_input_is_kept}

#include <utility>

#include "calm/io/load_weights.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/tensor_alias.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"

namespace calm {

/// All parameters in the file of a model, including the frozen ones of a CALM's autoencoder.
template <class Model> auto whole_parameters(Model& model) {
    auto all = parameters_of(model);
    for (auto& p : frozen_parameters_of(model)) all.push_back(std::move(p));
    return all;
}

/// Loads the weights of a stored autoencoder into a model on any device. The model must have memory (calm::allocate)
/// and the vocabulary of the file. Throws errc::config with every differing size, errc::model_file, and errc::usage for
/// a model on the CPU without memory.
template <autoencoder_configuration C, class Space>
void load_model(context<typename Space::backend> const& ctx, stored_model const& from, autoencoder<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    load_weights(ctx, *from.weights, tied_names_of_autoencoder, parameters_of(model));
}

/// Loads a whole CALM including its autoencoder. Both need memory: calm::allocate for each, or an owned_model. Throws
/// as load_model.
template <model_configuration auto C, class Space>
void load_model(context<typename Space::backend> const& ctx, stored_model const& from, calm_model<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    if (from.autoencoder == nullptr) {
        load_weights(ctx, *from.weights, tied_names_of_calm, whole_parameters(model));
    } else {
        load_weights(ctx, *from.weights, tied_names_of_calm, parameters_of(model));
        load_model(ctx, *from.autoencoder, model.ae_model);
    }
}

/// Loads an autoregressive model. If it is tied, the files may hold its one table under both names. Throws as
/// load_model, and errc::model_file if the two tables differ.
template <autoregressive_configuration C, class Space>
void load_model(context<typename Space::backend> const& ctx, stored_model const& from,
                autoregressive_model<C, Space>& model) {
    require_match(C, model.vocabulary(), from);
    load_weights(ctx, *from.weights, detail::tied_names_of(from.description), parameters_of(model));
}

/// Overloads for models on the host, without a context.
template <autoencoder_configuration C, class T>
void load_model(stored_model const& from, autoencoder<C, space<cpu, T>>& model) {
    load_model(context<>(0, 1), from, model);
}
/// Loads a CALM on the host.
template <model_configuration auto C, class T>
void load_model(stored_model const& from, calm_model<C, space<cpu, T>>& model) {
    load_model(context<>(0, 1), from, model);
}
/// Loads an autoregressive model on the host.
template <autoregressive_configuration C, class T>
void load_model(stored_model const& from, autoregressive_model<C, space<cpu, T>>& model) {
    load_model(context<>(0, 1), from, model);
}

}  // namespace calm
