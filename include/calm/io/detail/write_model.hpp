#pragma once
// Writes a model directory.

#include <span>
#include <string>

#include "calm/io/detail/config_json.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/stored_model.hpp"

namespace calm {

// Writes a directory whose weights are `tensors`. Throws errc::storage.
inline void write_model(std::string const& directory, model_description description, model_files const& extra_files,
                        if_exists existing, std::span<stored_tensor const> tensors) {
    bool const in_double = !tensors.empty() && tensors.front().type == stored_type::f64;
    description.torch_dtype = in_double ? "float64" : "float32";
    replaced_directory target(directory, existing);
    target.leave_out(bigram_file);  // of the text of another model, unless it is in extra_files
    for (auto const& [name, bytes] : extra_files) target.write(name, bytes);
    target.write(config_file, config_json_text(description));
    write_safetensors(target.path(weights_file), tensors, {{"format", "pt"}});
    target.commit();
}

}  // namespace calm
