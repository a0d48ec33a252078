#pragma once
// Weights in int8 in files: a tensor "name" of I8 (n, k), and its scales "name.scales" of BF16 (n, k / 32).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/io/detail/stored_tensor.hpp"
#include "calm/tensor/detail/ops/int8_blocks.hpp"

namespace calm::detail {

inline constexpr std::string_view scales_suffix = ".scales";

// Joins each tensor of I8 with its scales, if they are there and fit, to one tensor.
inline void join_scales(std::vector<stored_tensor>& tensors) {
    std::map<std::string, std::size_t> scales;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        if (tensors[i].type == stored_type::bf16 && tensors[i].name.ends_with(scales_suffix))
            scales.emplace(tensors[i].name, i);
    if (scales.empty()) return;
    std::vector<bool> is_joined(tensors.size());
    for (auto& tensor : tensors) {
        if (tensor.type != stored_type::i8 || tensor.shape.size() != 2 || !fits_int8_blocks(tensor.shape[1])) continue;
        auto const found = scales.find(tensor.name + std::string(scales_suffix));
        if (found == scales.end()) continue;
        auto const& own = tensors[found->second];
        if (own.shape != std::vector<index_t>{tensor.shape[0], tensor.shape[1] / int8_block}) continue;
        tensor.scales = own.bytes;
        is_joined[found->second] = true;
    }
    std::vector<stored_tensor> left;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        if (!is_joined[i]) left.push_back(std::move(tensors[i]));
    tensors = std::move(left);
}

// Rounds weights to int8 for files, and owns their bytes.
class int8_tensors {
public:
    // Appends a tensor as files hold it. Weights in int8 become two tensors, and so do matrices with rows of whole
    // blocks if `round`; all others stay as they are. Errors name the file `path`.
    void add(stored_tensor const& tensor, bool round, std::string const& path, std::vector<stored_tensor>& to) {
        if (!tensor.scales.empty()) return append(tensor, tensor.bytes, tensor.scales, to);
        if (!round || !is_weight(tensor) || tensor.shape.size() != 2 || !fits_int8_blocks(tensor.shape[1])) {
            to.push_back(tensor);
            return;
        }
        constexpr auto block = static_cast<std::size_t>(int8_block);
        std::vector<float> values(tensor.count());
        read_into(tensor, std::span(values), path);
        auto& made = rounded_.emplace_back();
        made.bytes.resize(values.size());
        made.scales.reserve(values.size() / block);
        for (std::size_t i = 0; i < values.size(); i += block)
            made.scales.push_back(quantise_block(values.data() + i, made.bytes.data() + i));
        append(tensor, std::as_bytes(std::span(made.bytes)), std::as_bytes(std::span(made.scales)), to);
    }

private:
    struct rounded {
        std::vector<std::int8_t> bytes;
        std::vector<bf16> scales;
    };

    static void append(stored_tensor const& tensor, std::span<std::byte const> bytes, std::span<std::byte const> scales,
                       std::vector<stored_tensor>& to) {
        to.push_back({tensor.name, stored_type::i8, tensor.shape, bytes});
        to.push_back({tensor.name + std::string(scales_suffix),
                      stored_type::bf16,
                      {tensor.shape[0], tensor.shape[1] / int8_block},
                      scales});
    }

    std::deque<rounded> rounded_;  // tensors refer to it
};

}  // namespace calm::detail
