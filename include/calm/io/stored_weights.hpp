#pragma once
/// \file
/// The weights of a model directory, in any published layout.
/// \shows{tests/io/shard_index_test.cpp,several_files_are_one_table}

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/io/detail/int8_tensors.hpp"
#include "calm/io/detail/pytorch_file.hpp"
#include "calm/io/detail/shard_index.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/tensor_table.hpp"

namespace calm {

/// The layouts: one file, or several listed by an index, of safetensors or of PyTorch.
enum class weights_layout { safetensors, sharded_safetensors, pytorch, sharded_pytorch };

namespace detail {

struct layout_facts {
    weights_layout layout;
    std::string_view file;
    std::string_view text;
};
// In search order, which is that of other programs.
inline constexpr std::array<layout_facts, 4> weights_layouts{
    {{weights_layout::safetensors, weights_file, "one safetensors file"},
     {weights_layout::sharded_safetensors, "model.safetensors.index.json", "several safetensors files"},
     {weights_layout::pytorch, "pytorch_model.bin", "one PyTorch archive"},
     {weights_layout::sharded_pytorch, "pytorch_model.bin.index.json", "several PyTorch archives"}}};

}  // namespace detail

namespace detail {
// Whether a file with this name is, or could be mistaken for, a weight file.
inline bool names_weights(std::string_view name) {
    return name.ends_with(".safetensors") || std::any_of(weights_layouts.begin(), weights_layouts.end(),
                                                         [&](auto const& facts) { return name == facts.file; });
}
}  // namespace detail

/// "several safetensors files"
inline std::string_view name_of(weights_layout layout) {
    return detail::weights_layouts[static_cast<std::size_t>(layout)].text;
}

/// All tensors of a model directory, as one table over its files. Weights in int8 and their scales are one tensor. The
/// bytes stay in the files until they are read. Move-only; tensors and their bytes are valid as long as it lives.
class stored_weights : public tensor_table {
public:
    /// Opens the first that exists of model.safetensors, its sharded form, pytorch_model.bin, and its sharded form.
    /// Throws errc::model_file if there is none, errc::storage if the directory cannot be searched, and as the formats
    /// do.
    static stored_weights open(std::string const& directory) {
        for (auto const& facts : detail::weights_layouts) {
            auto const path = in_directory(directory, facts.file);
            std::error_code unknown;
            if (std::filesystem::exists(path, unknown)) {
                auto weights = open(facts.layout, path);
                for (auto const* other = &facts + 1; other != detail::weights_layouts.end(); ++other)
                    if (std::filesystem::exists(in_directory(directory, other->file), unknown))
                        weights.unread_.emplace_back(other->file);
                return weights;
            }
            if (unknown) throw error(errc::storage, path, "", "cannot be checked: " + unknown.message());
        }
        throw error(errc::model_file, directory, "",
                    "expected model.safetensors, pytorch_model.bin or the .index.json of either, found none of them");
    }

    [[nodiscard]] weights_layout layout() const noexcept { return layout_; }  ///< the layout found
    /// Whether a file with this name holds some of the tensors.
    [[nodiscard]] bool holds_file(std::string_view name) const {
        return std::any_of(files_.begin(), files_.end(),
                           [&](auto const& file) { return std::filesystem::path(file->path()).filename() == name; });
    }
    /// Files of other layouts in the directory, which are ignored; they may hold other weights.
    [[nodiscard]] std::vector<std::string> const& unread() const noexcept { return unread_; }
    /// The number of files that hold the tensors.
    [[nodiscard]] std::size_t files() const noexcept { return files_.size(); }

private:
    using owners = std::vector<std::shared_ptr<tensor_table const>>;

    stored_weights(weights_layout layout, std::string const& path, std::vector<stored_tensor> tensors,
                   std::map<std::string, std::string> metadata, owners files) :
        tensor_table(path, joined(std::move(tensors)), std::move(metadata)),
        layout_(layout), files_(std::move(files)) {}

    static std::vector<stored_tensor> joined(std::vector<stored_tensor> tensors) {
        detail::join_scales(tensors);
        return tensors;
    }
    static stored_weights open(weights_layout layout, std::string const& path) {
        switch (layout) {
        case weights_layout::safetensors:
            return one<safetensors_file>(layout, path);
        case weights_layout::sharded_safetensors:
            return several<safetensors_file>(layout, path);
        case weights_layout::pytorch:
            return one<detail::pytorch_file>(layout, path);
        default:
            return several<detail::pytorch_file>(layout, path);
        }
    }
    template <class File> static stored_weights one(weights_layout layout, std::string const& path) {
        auto const file = std::make_shared<File const>(File::open(path));
        return {layout, path, {file->tensors().begin(), file->tensors().end()}, file->metadata(), {file}};
    }
    template <class File> static stored_weights several(weights_layout layout, std::string const& path) {
        owners files;
        auto tensors = detail::open_shards(
            path, &File::open, [&](File shard) { files.push_back(std::make_shared<File const>(std::move(shard))); });
        std::map<std::string, std::string> metadata;
        for (auto const& file : files) metadata.insert(file->metadata().begin(), file->metadata().end());
        return {layout, path, std::move(tensors), std::move(metadata), std::move(files)};
    }

    weights_layout layout_;
    owners files_;
    std::vector<std::string> unread_;
};

}  // namespace calm
