#pragma once
/// \file
/// Converts a stored model: from any published layout to safetensors, in another precision, in one file or several.
/// \shows{tests/io/convert_model_test.cpp,every_layout_becomes_the_same_file}

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/int8_tensors.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/detail/rounded_type.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/detail/write_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/tensor_alias.hpp"

namespace calm {

/// How convert_model writes a model.
struct conversion {
    /// Type of floating-point tensors; nullopt: as stored. With i8, matrices with rows of whole blocks of 32 become
    /// int8 with scales, and all else stays as stored.
    std::optional<stored_type> as;
    std::uint64_t shard_bytes = std::numeric_limits<std::uint64_t>::max();  ///< maximum bytes of tensors per file
};

namespace detail {

// Appends the tensors of a table except aliases, with `prefix` before their names.
inline void collect_tensors(tensor_table const& from, std::span<tensor_alias const> ties, std::string const& prefix,
                            std::vector<stored_tensor>& to) {
    for (auto const& tensor : from.tensors()) {
        if (repeats_another(from, tensor, ties)) continue;
        to.push_back(tensor);
        to.back().name = prefix + tensor.name;
    }
}

// Maximum bytes of a file of counts that is copied: 2^27 pairs, more than the text of any run here has.
inline constexpr std::uint64_t largest_counts = std::uint64_t{1} << 31;

// Whether a file other than weights and config.json belongs to the model, not to the run that made it.
inline bool belongs_to_model(std::string_view name, std::string_view tokenizer) {
    constexpr std::array<std::string_view, 5> begins{"tokenizer", "vocab", "merges", "special_tokens", "added_tokens"};
    for (auto const begin : begins)
        if (name.starts_with(begin)) return true;
    return name == tokenizer || name == "generation_config.json" || name == bigram_file;
}

// The type common to all floating-point tensors, or nullopt.
inline std::optional<stored_type> common_type(std::span<stored_tensor const> tensors) {
    std::optional<stored_type> type;
    for (auto const& tensor : tensors) {
        if (!is_float(tensor.type)) continue;
        if (type && *type != tensor.type) return std::nullopt;
        type = tensor.type;
    }
    return type;
}

}  // namespace detail

/// The tensors in the directory of a model, without aliases.
inline std::vector<stored_tensor> tensors_of(stored_model const& model) {
    std::vector<stored_tensor> tensors;
    detail::collect_tensors(*model.weights, detail::tied_names_of(model.description), "", tensors);
    return tensors;
}

/// Writes a model to a new directory: every tensor once, as safetensors, rounded to nearest if the type changes;
/// config.json with that type; tokenizer and counts unchanged. A CALM includes the autoencoder of `ae_path`. Needs
/// memory for one block of a tensor, and to int8 for the result. Throws errc::model_file if another file is larger than
/// the library reads, errc::non_finite if a value overflows the type, errc::storage if writing fails or the directory
/// exists.
inline void convert_model(stored_model const& model, std::string const& to, conversion const& c = {}) {
    auto tensors = tensors_of(model);
    if (model.autoencoder != nullptr)
        detail::collect_tensors(*model.autoencoder->weights, tied_names_of_autoencoder, "ae_model.", tensors);

    replaced_directory target(to);
    std::string const tokenizer =
        model.description.calm && model.description.calm->tokenizer ? model.description.calm->tokenizer->file : "";
    for (auto const& name : detail::names_in(model.directory)) {
        std::error_code unknown;
        auto const path = in_directory(model.directory, name);
        if (!detail::belongs_to_model(name, tokenizer) || !std::filesystem::is_regular_file(path, unknown)) continue;
        auto const file = mapped_file::open(path);
        auto const most = name == bigram_file ? detail::largest_counts : limits::tokenizer_file;
        if (file.bytes().size() > most)
            throw error(errc::model_file, path, "",
                        sentence("expected at most ", most, " bytes, found ", file.bytes().size(),
                                 "; it belongs to no model: remove it"));
        target.write(name, file.text());
    }
    auto description = model.description;
    bool const to_int8 = c.as == stored_type::i8;
    auto const as = to_int8 ? std::nullopt : c.as;
    if (auto const type = as ? as : detail::common_type(tensors)) description.torch_dtype = torch_name_of(*type);
    target.write(config_file, config_json_text(description));
    auto metadata = model.weights->metadata();
    metadata.emplace("format", "pt");
    detail::int8_tensors rounded;
    std::vector<stored_tensor> written;
    for (auto const& tensor : tensors)
        if (as)
            written.push_back(tensor);
        else
            rounded.add(tensor, to_int8, model.directory, written);
    detail::write_weights(target, written, metadata, as, c.shard_bytes);
    target.commit();
}
/// Converts the model in a directory. Throws also as read_model_description.
inline void convert_model(std::string const& from, std::string const& to, conversion const& c = {}) {
    convert_model(read_model_description(from), to, c);
}

}  // namespace calm
