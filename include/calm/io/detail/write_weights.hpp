#pragma once
// Writes tensors to a model directory: one safetensors file, or several with an index.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/detail/rounded_type.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/safetensors.hpp"

namespace calm::detail {

inline std::uint64_t written_bytes(stored_tensor const& tensor, std::optional<stored_type> as) {
    return tensor.count() * bytes_of(as && is_weight(tensor) ? *as : tensor.type);
}

// "model-00002-of-00003.safetensors"
inline std::string shard_name(std::size_t number, std::size_t of) {
    auto const digits = [](std::size_t n) {
        auto const text = std::to_string(n);
        return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
    };
    return "model-" + digits(number) + "-of-" + digits(of) + ".safetensors";
}

// Where each shard begins: as many tensors as fit, at least one per shard.
inline std::vector<std::size_t> shard_begins(std::span<stored_tensor const> tensors, std::optional<stored_type> as,
                                             std::uint64_t most) {
    std::vector<std::size_t> begins{0};
    std::uint64_t used = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        auto const bytes = written_bytes(tensors[i], as);
        if (i > begins.back() && (bytes > most || used > most - bytes)) {
            begins.push_back(i);
            used = 0;
        }
        used += bytes;
    }
    return begins;
}

// Writes tensors to a new directory, floating-point ones as the type `as` (write_safetensors). The result is
// model.safetensors or, for more than `shard_bytes` bytes, files of at most that size (a larger tensor gets its own
// file) and model.safetensors.index.json. Throws as write_safetensors.
inline void write_weights(replaced_directory const& to, std::span<stored_tensor const> tensors,
                          std::map<std::string, std::string> const& metadata, std::optional<stored_type> as,
                          std::uint64_t shard_bytes) {
    std::uint64_t total = 0;
    for (auto const& tensor : tensors) total += written_bytes(tensor, as);
    auto const begins = shard_begins(tensors, as, shard_bytes);
    if (begins.size() == 1) return write_safetensors(to.path(weights_file), tensors, metadata, as);
    std::string map;
    for (std::size_t i = 0; i < begins.size(); ++i) {
        std::size_t const end = i + 1 < begins.size() ? begins[i + 1] : tensors.size();
        auto const part = tensors.subspan(begins[i], end - begins[i]);
        auto const name = shard_name(i + 1, begins.size());
        write_safetensors(to.path(name), part, metadata, as);
        for (auto const& tensor : part)
            map += (map.empty() ? "" : ",\n") + ("    " + json_string(tensor.name)) + ": \"" + name + "\"";
    }
    to.write("model.safetensors.index.json", "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total) +
                                                 "\n  },\n  \"weight_map\": {\n" + map + "\n  }\n}\n");
}

}  // namespace calm::detail
