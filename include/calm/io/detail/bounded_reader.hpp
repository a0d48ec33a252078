#pragma once
// Bounds-checked reading of untrusted bytes: every size is compared with the remaining bytes before it is used.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "calm/base/detail/checked.hpp"
#include "calm/base/error.hpp"

namespace calm::detail {

// Walks over the bytes of one file. A read past the end throws the given code and names the file, the byte, the
// expected content and the bytes left. The bytes are not owned.
class bounded_reader {
public:
    // Starts at byte 0. Errors have the code `code` and name the file `path`.
    bounded_reader(std::span<std::byte const> bytes, std::string path, errc code = errc::model_file) :
        bytes_(bytes), path_(std::move(path)), code_(code) {}

    [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }  // bytes of the file
    [[nodiscard]] std::uint64_t position() const noexcept { return position_; }  // of the next byte, from 0
    // Bytes from the position to the end.
    [[nodiscard]] std::uint64_t remaining() const noexcept { return size() - position_; }
    [[nodiscard]] std::string const& path() const noexcept { return path_; }  // name of the file in errors

    // Moves to a byte of the file, 0 <= position <= size().
    void seek(std::uint64_t position, std::string_view what) {
        if (position > size()) fail(position, sentence(what, " lies past the end of ", bytes_in(size())));
        position_ = position;
    }

    // Returns the next n bytes and moves past them.
    std::span<std::byte const> take(std::uint64_t n, std::string_view what) {
        if (n > remaining())
            fail("expected " + std::string(what) + " of " + bytes_in(n) + ", found " + bytes_in(remaining()) +
                 " up to the end of the file; it is cut short or has another format");
        auto const from = bytes_.subspan(static_cast<std::size_t>(position_), static_cast<std::size_t>(n));
        position_ += n;
        return from;
    }

    // The next n bytes as text, without checking the encoding.
    std::string_view text(std::uint64_t n, std::string_view what) {
        auto const from = take(n, what);
        return {reinterpret_cast<char const*>(from.data()), from.size()};
    }

    // The next little-endian unsigned integer.
    template <std::unsigned_integral T> T little(std::string_view what) {
        auto const from = take(sizeof(T), what);
        T value = 0;
        for (std::size_t i = sizeof(T); i-- > 0;)
            value = static_cast<T>((std::uint64_t{value} << 8) | std::to_integer<std::uint64_t>(from[i]));
        return value;
    }

    // Throws an error of this file, at the current byte.
    [[noreturn]] void fail(std::string const& sentence) const { fail(position_, sentence); }
    // Throws an error of this file, at the given byte.
    [[noreturn]] void fail(std::uint64_t byte, std::string const& sentence) const {
        throw error(code_, path_, "byte " + std::to_string(byte), sentence);
    }

private:
    static std::string bytes_in(std::uint64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

    std::span<std::byte const> bytes_;
    std::string path_;
    errc code_;
    std::uint64_t position_ = 0;
};

}  // namespace calm::detail
