#pragma once
// Compressed bytes, made by zlib and zstd.

#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace calm::test {

// One gzip member.
inline std::string gzip(std::string_view text) {
    z_stream stream{};
    if (::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::runtime_error("zlib does not start");
    std::string packed(::deflateBound(&stream, text.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("zlib does not end");
    packed.erase(stream.total_out);
    ::deflateEnd(&stream);
    return packed;
}

// One zstd frame with a checksum.
inline std::string zstd(std::string_view text) {
    ZSTD_CCtx* const context = ::ZSTD_createCCtx();
    ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    std::string packed(::ZSTD_compressBound(text.size()), '\0');
    auto const size = ::ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size());
    ::ZSTD_freeCCtx(context);
    if (::ZSTD_isError(size) != 0) throw std::runtime_error("zstd does not end");
    packed.erase(size);
    return packed;
}

}  // namespace calm::test
