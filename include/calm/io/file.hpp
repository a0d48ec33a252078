#pragma once
// Files as the library meets them: mapped to be read, written beside and renamed to be replaced.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "calm/tensor/error.hpp"

namespace calm {

namespace detail {

[[noreturn]] inline void fail_with_errno(errc code, std::string const& path, std::string const& doing) {
    std::string const why = std::generic_category().message(errno);
    throw error(code, path, "", doing + ": " + why);
}

// A name that can only be a file of the directory it is looked for in.
inline bool is_plain_file_name(std::string_view name) {
    return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
           std::none_of(name.begin(), name.end(),
                        [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
}

// An open descriptor, closed at the end of its scope.
class descriptor {
public:
    explicit descriptor(int fd) noexcept : fd_(fd) {}
    descriptor(descriptor&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
    descriptor& operator=(descriptor&& from) noexcept {
        std::swap(fd_, from.fd_);
        return *this;
    }
    ~descriptor() { close(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    int close() noexcept { return fd_ < 0 ? 0 : ::close(std::exchange(fd_, -1)); }

private:
    int fd_;
};

// What was renamed in a directory ("" is the present one) lasts once it is flushed; some file systems cannot, which is
// no error.
inline void flush_directory(std::string const& path) {
    descriptor const directory(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() >= 0) ::fsync(directory.get());
}

// What was written to a file so far, by whomever, is on the disk. Throws errc::storage.
inline void flush_file(std::string const& path) {
    descriptor const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0 || ::fsync(file.get()) != 0) fail_with_errno(errc::storage, path, "cannot be flushed");
}

}  // namespace detail

// The bytes of a whole file, mapped for reading: pages come when they are touched. Move-only; the bytes live as long
// as the object. A file shortened by someone else while it is mapped ends the process, as with every mapping.
class mapped_file {
public:
    // Maps a regular file. Throws the code given where it cannot be opened, or is a folder or a device.
    static mapped_file open(std::string const& path, errc code = errc::storage) {
        // Without O_NONBLOCK the opening of a pipe that nobody writes never ends.
        detail::descriptor const fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (fd.get() < 0) detail::fail_with_errno(code, path, "cannot be opened");
        struct stat facts {};
        if (::fstat(fd.get(), &facts) != 0) detail::fail_with_errno(code, path, "its size cannot be read");
        if (!S_ISREG(facts.st_mode)) throw error(code, path, "", "expected a file, found a folder or a device");
        auto const size = static_cast<std::size_t>(facts.st_size);
        if (size == 0) return {path, nullptr, 0};
        void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
        if (at == MAP_FAILED) detail::fail_with_errno(errc::memory, path, "cannot be mapped");
        return {path, static_cast<std::byte const*>(at), size};
    }

    // The bytes go over; what is moved from has none.
    mapped_file(mapped_file&& from) noexcept { swap(from); }
    // The two change files.
    mapped_file& operator=(mapped_file&& from) noexcept {
        swap(from);
        return *this;
    }
    ~mapped_file() {
        if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    }

    [[nodiscard]] std::string const& path() const noexcept { return path_; }  // as it was opened
    // The whole file, from its first byte.
    [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return {data_, size_}; }
    // The same, without a check of its encoding.
    [[nodiscard]] std::string_view text() const noexcept { return {reinterpret_cast<char const*>(data_), size_}; }

private:
    mapped_file(std::string path, std::byte const* data, std::size_t size) :
        path_(std::move(path)), data_(data), size_(size) {}
    void swap(mapped_file& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    std::string path_;
    std::byte const* data_ = nullptr;
    std::size_t size_ = 0;
};

// A file being replaced: the bytes go to `path.partial` beside it, commit() flushes them to the disk and renames, so
// a reader meets the old file or the whole new one. Without a commit the part is removed. One writer a path at a time.
class replaced_file {
public:
    // Creates or empties `path.partial`. Throws errc::storage where that cannot be, or is a link.
    explicit replaced_file(std::string path) :
        path_(std::move(path)), partial_(path_ + ".partial"),
        fd_(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) {
        if (fd_.get() < 0) detail::fail_with_errno(errc::storage, partial_, "cannot be created");
    }
    replaced_file(replaced_file const&) = delete;
    replaced_file& operator=(replaced_file const&) = delete;
    ~replaced_file() {
        if (!committed_) ::unlink(partial_.c_str());
    }

    // Appends bytes. Throws errc::storage with the system's reason (a full disk, ...).
    void write(std::span<std::byte const> bytes) {
        constexpr std::size_t most = std::size_t{1} << 30;
        while (!bytes.empty()) {
            ssize_t const written = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), most));
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) detail::fail_with_errno(errc::storage, partial_, "cannot be written");
            bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }
    // The same for text.
    void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

    // Makes the new file the file. Throws errc::storage; the old file then still stands.
    void commit() {
        if (::fsync(fd_.get()) != 0) detail::fail_with_errno(errc::storage, partial_, "cannot be flushed to the disk");
        if (fd_.close() != 0) detail::fail_with_errno(errc::storage, partial_, "cannot be closed");
        if (::rename(partial_.c_str(), path_.c_str()) != 0)
            detail::fail_with_errno(errc::storage, path_, "cannot be replaced by " + partial_);
        committed_ = true;
        auto const slash = path_.rfind('/');
        detail::flush_directory(slash == std::string::npos ? "" : path_.substr(0, slash + 1));
    }

private:
    std::string path_;
    std::string partial_;
    detail::descriptor fd_;
    bool committed_ = false;
};

}  // namespace calm
