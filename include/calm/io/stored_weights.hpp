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
#include <utility>
#include <vector>

#include "calm/io/detail/whole_directory.hpp"
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
/// bytes stay in the files until they are read (open_weights). Move-only; tensors and their bytes are valid as long as
/// it lives.
class stored_weights : public tensor_table {
public:
    using owners = std::vector<std::shared_ptr<tensor_table const>>;  ///< files that are kept open

    /// `path` names the table in errors, `files` hold the tensors, `unread` are names of files of other layouts.
    stored_weights(weights_layout layout, std::string const& path, std::vector<stored_tensor> tensors,
                   std::map<std::string, std::string> metadata, owners files, std::vector<std::string> unread) :
        tensor_table(path, std::move(tensors), std::move(metadata)),
        layout_(layout), files_(std::move(files)), unread_(std::move(unread)) {}

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
    weights_layout layout_;
    owners files_;
    std::vector<std::string> unread_;
};

}  // namespace calm
