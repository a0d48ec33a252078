#pragma once
// Rewrites a safetensors file in the format of torch.save, i.e. the weights of pytorch_model.bin.

#include <string>
#include <vector>

#include "calm/io/safetensors.hpp"
#include "support/archives.hpp"

namespace calm::test {

// The bytes of a pytorch_model.bin with the tensors of a safetensors file, which must all be F32.
inline std::string as_torch_file(std::string const& path) {
    auto const file = safetensors_file::open(path);
    std::string items;
    std::vector<std::string> storages;
    for (auto const& tensor : file.tensors()) {
        auto const elements = static_cast<std::int64_t>(tensor.count());
        std::vector<std::int64_t> strides(tensor.shape.size(), 1);
        for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * tensor.shape[i];
        pickled::made_tensor const made{.key = std::to_string(storages.size()),
                                        .elements = elements,
                                        .offset = 0,
                                        .shape = {tensor.shape.begin(), tensor.shape.end()},
                                        .strides = strides};
        items += pickled::text(tensor.name) + made.made();
        storages.emplace_back(reinterpret_cast<char const*>(tensor.bytes.data()), tensor.bytes.size());
    }
    return zip_of(torch_parts(pickled::dictionary(items), storages));
}

}  // namespace calm::test
