// Any bytes as a compressed file: decompressed or refused, both times alike. Compressed with zstd, they come back.

#include <zlib.h>
#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "calm/text/byte_stream.hpp"
#include "file_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

// About the first mebibyte of a file's decompressed content, then the error message, if any.
std::string content_of(std::string const& path) {
    std::string all;
    try {
        calm::byte_stream bytes(path);
        for (auto part = bytes.next(); !part.empty() && all.size() < 1 << 20; part = bytes.next()) all += part;
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::data || wrong.path() != path) std::abort();
        all += wrong.what();
    }
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory gzip("a.txt.gz");
    static calm::test::file_in_memory zstd("a.txt.zst");
    auto const bytes = std::span(data, size);
    std::string const text(bytes.begin(), bytes.end());
    for (auto* const file : {&gzip, &zstd}) {
        auto const& path = file->with(bytes);
        if (content_of(path) != content_of(path)) std::abort();
    }
    std::vector<std::uint8_t> packed(::ZSTD_compressBound(size));
    packed.resize(::ZSTD_compress(packed.data(), packed.size(), data, size, 1));
    if (content_of(zstd.with(packed)) != text) std::abort();
    return 0;
}
