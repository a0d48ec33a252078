#pragma once
/// \file
/// Opens the weights of a model directory, in any published layout.
/// \shows{tests/io/shard_index_test.cpp,several_files_are_one_table}

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/io/detail/int8_tensors.hpp"
#include "calm/io/detail/pytorch_file.hpp"
#include "calm/io/detail/shard_index.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/stored_weights.hpp"

namespace calm {

namespace detail {

// The tensors of all `files`, with those of int8 joined to their scales.
inline stored_weights joined_weights(weights_layout layout, std::string const& path, std::vector<stored_tensor> tensors,
                                     stored_weights::owners files, std::vector<std::string> unread) {
    join_scales(tensors);
    std::map<std::string, std::string> metadata;
    for (auto const& file : files) metadata.insert(file->metadata().begin(), file->metadata().end());
    return {layout, path, std::move(tensors), std::move(metadata), std::move(files), std::move(unread)};
}

template <class File>
stored_weights open_layout(weights_layout layout, std::string const& path, bool sharded,
                           std::vector<std::string> unread) {
    if (!sharded) {
        auto const file = std::make_shared<File const>(File::open(path));
        return joined_weights(layout, path, {file->tensors().begin(), file->tensors().end()}, {file},
                              std::move(unread));
    }
    stored_weights::owners files;
    auto tensors = open_shards(path, &File::open,
                               [&](File shard) { files.push_back(std::make_shared<File const>(std::move(shard))); });
    return joined_weights(layout, path, std::move(tensors), std::move(files), std::move(unread));
}

}  // namespace detail

/// Opens the first that exists of model.safetensors, its sharded form, pytorch_model.bin, and its sharded form. Throws
/// errc::model_file if there is none, errc::storage if the directory cannot be searched, and as the formats do.
inline stored_weights open_weights(std::string const& directory) {
    std::vector<weights_layout> found;
    for (auto const& facts : detail::weights_layouts) {
        auto const path = in_directory(directory, facts.file);
        std::error_code unknown;
        if (std::filesystem::exists(path, unknown)) found.push_back(facts.layout);
        if (found.empty() && unknown) throw error(errc::storage, path, "", "cannot be checked: " + unknown.message());
    }
    if (found.empty())
        throw error(errc::model_file, directory, "",
                    "expected model.safetensors, pytorch_model.bin or the .index.json of either, found none of them");
    auto const file_of = [](weights_layout layout) {
        return detail::weights_layouts[static_cast<std::size_t>(layout)].file;
    };
    std::vector<std::string> unread;
    for (std::size_t i = 1; i < found.size(); ++i) unread.emplace_back(file_of(found[i]));
    auto const layout = found.front();
    auto const path = in_directory(directory, file_of(layout));
    bool const sharded = layout == weights_layout::sharded_safetensors || layout == weights_layout::sharded_pytorch;
    if (layout == weights_layout::safetensors || layout == weights_layout::sharded_safetensors)
        return detail::open_layout<safetensors_file>(layout, path, sharded, std::move(unread));
    return detail::open_layout<detail::pytorch_file>(layout, path, sharded, std::move(unread));
}

}  // namespace calm
