// Arbitrary bytes as a compressed file: decompressed or refused, both repeatably. Compressing the bytes with gzip or
// zstd and reading them back restores them.

#include <zlib.h>
#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "calm/text/detail/byte_stream.hpp"
#include "file_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

// The first mebibyte that a file decompresses to, plus the error message if it was refused.
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

std::vector<std::uint8_t> packed_by_gzip(std::span<std::uint8_t const> bytes) {
    constexpr int gzip_header = 16;
    ::z_stream z{};
    if (::deflateInit2(&z, 1, Z_DEFLATED, MAX_WBITS + gzip_header, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        std::abort();
    std::vector<std::uint8_t> packed(::deflateBound(&z, bytes.size()));
    z.next_in = const_cast<std::uint8_t*>(bytes.data());
    z.avail_in = static_cast<::uInt>(bytes.size());
    z.next_out = packed.data();
    z.avail_out = static_cast<::uInt>(packed.size());
    if (::deflate(&z, Z_FINISH) != Z_STREAM_END || ::deflateEnd(&z) != Z_OK) std::abort();
    packed.resize(z.total_out);
    return packed;
}
std::vector<std::uint8_t> packed_by_zstd(std::span<std::uint8_t const> bytes) {
    std::vector<std::uint8_t> packed(::ZSTD_compressBound(bytes.size()));
    packed.resize(::ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 1));
    return packed;
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
    if (content_of(gzip.with(packed_by_gzip(bytes))) != text) std::abort();
    if (content_of(zstd.with(packed_by_zstd(bytes))) != text) std::abort();
    return 0;
}
