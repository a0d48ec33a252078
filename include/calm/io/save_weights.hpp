#pragma once
/// \file
/// Saves parameters under the names that visit() gives them: the parameters_of and frozen_parameters_of a model.
/// \shows{tests/io/weights_test.cpp,bf16_weights_are_written_unchanged}

#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "calm/io/detail/stored_parameters.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/nn/param.hpp"
#include "calm/tensor/core/context.hpp"

namespace calm {

/// Writes parameters to one file atomically, each under its name, as the type `as` or else in its own precision, with
/// the metadata of published files. Throws errc::storage, errc::usage for a duplicate name, and errc::non_finite if a
/// value is not finite or overflows the type; nothing is written then.
template <class Space>
requires std::is_same_v<typename Space::backend, cpu>
void save_weights(std::string const& path, std::vector<any_parameter<Space>> const& parameters,
                  std::optional<stored_type> as = std::nullopt) {
    with_stored(parameters, [&](std::span<stored_tensor const> tensors) {
        write_safetensors(path, tensors, {{"format", "pt"}}, as);
    });
}
/// Saves parameters of any device, as above. A GPU's parameters are copied to the host first, which needs memory for
/// them.
template <class Backend, class Space>
void save_weights(context<Backend> const& ctx, std::string const& path,
                  std::vector<any_parameter<Space>> const& parameters, std::optional<stored_type> as = std::nullopt) {
    with_stored(ctx, parameters, [&](std::span<stored_tensor const> tensors) {
        write_safetensors(path, tensors, {{"format", "pt"}}, as);
    });
}

}  // namespace calm
