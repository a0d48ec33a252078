#pragma once
/// \file
/// Writes model directories: config.json, model.safetensors and the files next to them.
/// \shows{tests/io/model_directory_test.cpp,check_input_is_kept}

#include <span>
#include <string>
#include <vector>

#include "calm/io/detail/stored_parameters.hpp"
#include "calm/io/detail/write_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"

namespace calm {

namespace detail {

template <class Backend, class Space, class Configuration>
void save_checked(context<Backend> const& ctx, std::string const& directory, Configuration const& c, index_t vocabulary,
                  model_description const& description, model_files const& extra_files, if_exists existing,
                  std::vector<any_parameter<Space>> const& parameters) {
    static_assert(is_trainable<Space>,
                  "calm::save_model: expected a trainable model: one with bf16 weights is only for inference; save the "
                  "model that it was copied from, or convert its directory");
    require_match(c, vocabulary, stored_model{directory, description, described_sizes(description)});
    with_stored(ctx, parameters, [&](std::span<stored_tensor const> tensors) {
        write_model(directory, description, extra_files, existing, tensors);
    });
}

}  // namespace detail

/// Writes a model directory atomically: config.json, model.safetensors and the additional files, from any device. An
/// existing directory is refused with errc::storage or, with if_exists::replace, replaced: its other files stay, except
/// the counts of tokens, and a reader sees either the old or the new one. Throws errc::config if the description does
/// not match the model, and errc::storage.
template <autoencoder_configuration C, class Space>
void save_model(context<typename Space::backend> const& ctx, std::string const& directory, autoencoder<C, Space>& model,
                model_description const& description, model_files const& extra_files = {},
                if_exists existing = if_exists::refuse) {
    detail::save_checked(ctx, directory, C, model.vocabulary(), description, extra_files, existing,
                         parameters_of(model));
}

/// Saves a CALM; its autoencoder is in the same file, as ae_model.*.
template <model_configuration auto C, class Space>
void save_model(context<typename Space::backend> const& ctx, std::string const& directory, calm_model<C, Space>& model,
                model_description const& description, model_files const& extra_files = {},
                if_exists existing = if_exists::refuse) {
    // A published config.json does not describe the autoencoder.
    auto expected = C;
    if (!description.calm || !description.calm->autoencoder)
        expected.autoencoder = detail::with_published(detail::described_sizes(description).autoencoder, C.autoencoder);
    detail::save_checked(ctx, directory, expected, model.vocabulary(), description, extra_files, existing,
                         whole_parameters(model));
}

/// Saves an autoregressive model; a tied one is written without lm_head.weight.
template <autoregressive_configuration C, class Space>
void save_model(context<typename Space::backend> const& ctx, std::string const& directory,
                autoregressive_model<C, Space>& model, model_description const& description,
                model_files const& extra_files = {}, if_exists existing = if_exists::refuse) {
    detail::save_checked(ctx, directory, C, model.vocabulary(), description, extra_files, existing,
                         parameters_of(model));
}

/// Overloads for models on the host, without a context.
template <autoencoder_configuration C, class T>
void save_model(std::string const& directory, autoencoder<C, space<cpu, T>>& model,
                model_description const& description, model_files const& extra_files = {},
                if_exists existing = if_exists::refuse) {
    save_model(context<>(0, 1), directory, model, description, extra_files, existing);
}
/// Saves a CALM on the host.
template <model_configuration auto C, class T>
void save_model(std::string const& directory, calm_model<C, space<cpu, T>>& model, model_description const& description,
                model_files const& extra_files = {}, if_exists existing = if_exists::refuse) {
    save_model(context<>(0, 1), directory, model, description, extra_files, existing);
}
/// Saves an autoregressive model on the host.
template <autoregressive_configuration C, class T>
void save_model(std::string const& directory, autoregressive_model<C, space<cpu, T>>& model,
                model_description const& description, model_files const& extra_files = {},
                if_exists existing = if_exists::refuse) {
    save_model(context<>(0, 1), directory, model, description, extra_files, existing);
}

}  // namespace calm
