#pragma once
// The bytes of a file, decompressed if its name ends in .gz or .zst.

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"

namespace calm {

// Reads a file from beginning to end in blocks of at most 128 KiB. Consecutive gzip members or zstd frames are
// concatenated. Move-only.
class byte_stream {
public:
    // Throws errc::storage if the file cannot be opened, or is a folder, a pipe or a device.
    explicit byte_stream(std::string path);

    // The next bytes, valid until the next call; empty at the end. Throws errc::data with the byte of the file if
    // compressed data are damaged or truncated, need more than 128 MiB to decompress, or exceed 64 MiB after growing
    // more than thousandfold. Throws errc::storage if reading fails. After an error the stream is at its end.
    [[nodiscard]] std::string_view next();

    [[nodiscard]] std::string const& path() const noexcept { return path_; }  // as it was opened
    // Bytes of the file consumed so far.
    [[nodiscard]] std::uint64_t offset() const noexcept { return read_ - (input_.size() - used_); }

private:
    static constexpr std::size_t block = std::size_t{128} << 10;
    static constexpr std::uint64_t most_growth = 1000;
    static constexpr std::uint64_t harmless = std::uint64_t{64} << 20;

    struct end_of_gzip {
        void operator()(z_stream* stream) const {
            ::inflateEnd(stream);
            delete stream;
        }
    };
    struct end_of_zstd {
        void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
    };

    [[noreturn]] void fail(std::string const& sentence) {
        ended_ = true;
        throw error(errc::data, path_, "byte " + std::to_string(offset()), sentence);
    }
    // Reads more of the file when all input is used; false at its end.
    bool refill();
    // Decompress into the block; return the number of bytes produced, 0 only for lack of input.
    std::size_t inflate_some();
    std::size_t unzstd_some();

    std::string path_;
    detail::descriptor file_;
    std::unique_ptr<z_stream, end_of_gzip> gzip_;
    std::unique_ptr<ZSTD_DStream, end_of_zstd> zstd_;
    std::unique_ptr<char[]> raw_ = std::make_unique<char[]>(block);
    std::unique_ptr<char[]> made_;  // output of decompression
    std::string_view input_;        // in raw_
    std::size_t used_ = 0;          // bytes of input_ consumed
    std::uint64_t read_ = 0;        // bytes read from the file
    std::uint64_t total_ = 0;       // bytes returned
    bool inside_ = false;           // within an unfinished member or frame
    bool full_ = false;             // the last call filled the block
    bool ended_ = false;
};

[[gnu::cold]] inline byte_stream::byte_stream(std::string path) :
    path_(std::move(path)), file_(detail::open_for_reading(path_)) {
    if (path_.ends_with(".gz")) {
        auto stream = std::make_unique<z_stream>();
        int const with_header_of_gzip = 16 + MAX_WBITS;
        require(::inflateInit2(stream.get(), with_header_of_gzip) == Z_OK, errc::memory, "zlib cannot be started");
        gzip_.reset(stream.release());
    } else if (path_.ends_with(".zst")) {
        zstd_.reset(::ZSTD_createDStream());
        require(zstd_ != nullptr, errc::memory, "zstd cannot be started");
    }
    if (gzip_ || zstd_) made_ = std::make_unique<char[]>(block);
}

[[gnu::cold]] inline bool byte_stream::refill() {
    auto const count = uninterrupted([&] { return ::read(file_.get(), raw_.get(), block); });
    if (count < 0) {
        ended_ = true;
        detail::fail_with_errno(errc::storage, path_, "cannot be read");
    }
    input_ = {raw_.get(), static_cast<std::size_t>(count)};
    used_ = 0;
    read_ += input_.size();
    return count > 0;
}

[[gnu::cold]] inline std::size_t byte_stream::inflate_some() {
    gzip_->next_in = reinterpret_cast<Bytef*>(raw_.get() + used_);
    gzip_->avail_in = static_cast<uInt>(input_.size() - used_);
    gzip_->next_out = reinterpret_cast<Bytef*>(made_.get());
    gzip_->avail_out = static_cast<uInt>(block);
    int const code = ::inflate(gzip_.get(), Z_NO_FLUSH);
    used_ = input_.size() - gzip_->avail_in;
    if (code == Z_MEM_ERROR) throw error(errc::memory, path_, "", "there is not enough memory to decompress it");
    inside_ = code != Z_STREAM_END;
    if (code == Z_STREAM_END)
        ::inflateReset(gzip_.get());
    else if (code != Z_OK && code != Z_BUF_ERROR)
        fail(std::string("invalid gzip data (") + (gzip_->msg != nullptr ? gzip_->msg : "preset dictionary") +
             "): the file is damaged or has another format, copy it again");
    return block - gzip_->avail_out;
}

[[gnu::cold]] inline std::size_t byte_stream::unzstd_some() {
    ZSTD_inBuffer in{input_.data(), input_.size(), used_};
    ZSTD_outBuffer out{made_.get(), block, 0};
    std::size_t const code = ::ZSTD_decompressStream(zstd_.get(), &out, &in);
    used_ = in.pos;
    if (::ZSTD_isError(code) != 0)
        fail(std::string("invalid zstd data (") + ::ZSTD_getErrorName(code) +
             "): the file is damaged, has another format, or was made with --long; copy it again or decompress it");
    inside_ = code != 0;
    return out.pos;
}

[[gnu::cold]] inline std::string_view byte_stream::next() {
    if (!gzip_ && !zstd_) {
        ended_ = ended_ || !refill();
        used_ = input_.size();
        return ended_ ? std::string_view{} : input_;
    }
    while (!ended_) {
        bool const more_is_held = inside_ && full_;
        if (used_ == input_.size() && !more_is_held && !refill()) {
            ended_ = true;
            if (inside_) fail("the compressed file ends early: it was cut short, copy it again");
            break;
        }
        std::size_t const made = gzip_ ? inflate_some() : unzstd_some();
        full_ = made == block;
        total_ += made;
        if (total_ > harmless && total_ / most_growth > read_)
            fail("it grows more than " + std::to_string(most_growth) +
                 " times when decompressed, which no text does: decompress it yourself if this is intended");
        if (made > 0) return {made_.get(), made};
    }
    return {};
}

}  // namespace calm
