// Arbitrary bytes as pytorch_model.bin: refused, or tensors whose bytes lie in the file. If the first byte is 'P' they
// are the archive; otherwise the rest is a bare pickle, so that checksums do not shield the pickle reader.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>

#include "calm/io/detail/pytorch_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    auto const bytes = std::as_bytes(std::span(data, size));
    try {
        if (size > 0 && data[0] != 'P') {
            for (auto const& tensor : calm::detail::read_pickled_tensors(bytes.subspan(1), "fuzz"))
                if (tensor.shape.size() != tensor.strides.size()) std::abort();
            return 0;
        }
        calm::detail::pytorch_archive const archive(bytes, "fuzz");
        for (auto const& tensor : archive.tensors) {
            auto const* const begin = tensor.bytes.data();
            if (tensor.bytes.empty()) continue;
            if (std::less<>()(begin, bytes.data()) ||
                static_cast<std::size_t>(begin - bytes.data()) + tensor.bytes.size() > size)
                std::abort();
        }
    } catch (calm::error const&) {
    }
    return 0;
}
