// Any bytes as a .safetensors file: refused, or every byte of the data belongs to one tensor.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "calm/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        calm::detail::safetensors_header const header(std::as_bytes(std::span(data, size)), "fuzz");
        std::size_t covered = 0;
        for (auto const& tensor : header.tensors) covered += tensor.bytes.size();
        std::uint64_t length = 0;
        for (std::size_t i = 8; i-- > 0;) length = length << 8 | data[i];
        if (covered != size - 8 - length) std::abort();
        for (auto const& tensor : header.tensors) {
            if (!calm::detail::is_float(tensor.type)) continue;
            std::vector<float> values(tensor.count());
            calm::read_into(tensor, std::span<float>(values), "fuzz");
        }
    } catch (calm::error const&) {
    }
    return 0;
}
