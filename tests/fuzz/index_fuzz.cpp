// Arbitrary bytes as model.safetensors.index.json: refused, or all named files lie in the index's directory.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "calm/io/detail/shard_index.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        auto const index =
            calm::detail::parse_shard_index(std::string_view(reinterpret_cast<char const*>(data), size), "fuzz");
        for (auto const& file : index.shards())
            if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos) std::abort();
    } catch (calm::error const&) {
    }
    return 0;
}
