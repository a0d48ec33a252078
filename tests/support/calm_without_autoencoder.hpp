#pragma once
// A CALM stored without its autoencoder, as published code can write it.

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "calm/io/convert_model.hpp"

namespace calm::test {

// Copies the CALM in directory `from` to `to` without the tensors of its autoencoder; config.json says `ae_path`.
inline void write_without_autoencoder(std::string const& from, std::string const& to, std::string ae_path) {
    auto const whole = read_model_description(from);
    std::vector<stored_tensor> tensors;
    for (auto const& tensor : tensors_of(whole))
        if (!tensor.name.starts_with("ae_model.")) tensors.push_back(tensor);
    auto description = whole.description;
    description.ae_path = std::move(ae_path);
    replaced_directory target(to);
    target.write(config_file, config_json_text(description));
    detail::write_weights(target, tensors, {}, {}, std::numeric_limits<std::uint64_t>::max());
    target.commit();
}

}  // namespace calm::test
