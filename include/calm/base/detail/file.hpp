#pragma once
// Files: mapped for reading, replaced atomically through a temporary file and a rename.
//
// Only regular files are read; a pipe or a device is refused by name. A path given by the user may be a link. Links
// found in a folder are followed only if they stay inside it (`leads_outside`). A write replaces a link and never
// follows it.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "calm/base/error.hpp"

namespace calm {

// Repeats a system call as long as a signal interrupts it; the result is negative with errno set if it fails.
template <class Call> auto uninterrupted(Call const& call) {
    for (;;)
        if (auto const result = call(); result >= 0 || errno != EINTR) return result;
}

namespace detail {

[[noreturn]] inline void fail_with_errno(errc code, std::string const& path, std::string const& doing) {
    std::string const why = std::generic_category().message(errno);
    throw error(code, path, "", doing + ": " + why);
}

// True if the name can only be a file directly in the directory in which it is looked up.
inline bool is_plain_file_name(std::string_view name) {
    return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
           std::none_of(name.begin(), name.end(),
                        [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
}

// An owned file descriptor, closed on destruction.
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

// Throws `code` unless `facts` describe a regular file: "expected a file, found a pipe".
inline void require_regular(struct stat const& facts, std::string const& path, errc code) {
    if (S_ISREG(facts.st_mode)) return;
    char const* const found = S_ISDIR(facts.st_mode)    ? "a folder"
                              : S_ISLNK(facts.st_mode)  ? "a link"
                              : S_ISFIFO(facts.st_mode) ? "a pipe"
                              : S_ISSOCK(facts.st_mode) ? "a socket"
                                                        : "a device";
    throw error(code, path, "", std::string("expected a file, found ") + found);
}

inline struct stat facts_of(descriptor const& file, std::string const& path, errc code = errc::storage) {
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) fail_with_errno(code, path, "its size cannot be read");
    return facts;
}

// Opens a regular file, never a pipe or device. Without O_NONBLOCK, opening a pipe that has no writer would block
// forever. A created file gets the permissions 0666, limited by the umask.
inline descriptor open_regular(std::string const& path, int flags, errc code, char const* doing) {
    descriptor file(
        uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666); }));
    if (file.get() < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
        throw error(code, path, "", "is a link, which is not followed: remove it, or put the file itself there");
    if (file.get() < 0) fail_with_errno(code, path, doing);
    require_regular(facts_of(file, path, code), path, code);
    return file;
}
// Throws `code` if the file does not exist or cannot be read.
inline descriptor open_for_reading(std::string const& path, errc code = errc::storage) {
    return open_regular(path, O_RDONLY, code, "cannot be opened");
}

inline void write_all(descriptor const& file, std::string const& path, std::span<std::byte const> bytes) {
    constexpr std::size_t most = std::size_t{1} << 30;
    while (!bytes.empty()) {
        auto const written =
            uninterrupted([&] { return ::write(file.get(), bytes.data(), std::min(bytes.size(), most)); });
        if (written < 0) fail_with_errno(errc::storage, path, "cannot be written");
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

// Flushes everything written to a file so far, by any process, to the disk. Throws errc::storage.
inline void flush(descriptor const& file, std::string const& path) {
    if (uninterrupted([&] { return ::fsync(file.get()); }) != 0)
        fail_with_errno(errc::storage, path, "cannot be flushed to the disk");
}

// Flushes a directory ("": the current one), which makes creations, renames and removals in it durable. Throws
// errc::storage. Not an error if the file system lacks this operation or the directory is writable but not readable.
inline void flush_directory(std::string const& name) {
    std::string const path = name.empty() ? "." : name;
    descriptor const directory(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    bool const opened = directory.get() >= 0;
    if (opened && uninterrupted([&] { return ::fsync(directory.get()); }) == 0) return;
    if (opened ? errno != EINVAL && errno != ENOTSUP && errno != EROFS : errno != EACCES)
        fail_with_errno(errc::storage, path, "the directory cannot be flushed to the disk");
}
// Flushes the directory that contains `path`.
inline void flush_directory_of(std::string const& path) {
    auto const slash = path.find_last_of('/');
    flush_directory(slash == std::string::npos ? "" : path.substr(0, slash + 1));
}

// Whether a path, after following links, is outside of a folder. False for a dangling link.
inline bool leads_outside(std::string const& folder, std::string const& path) {
    auto const real = [](std::string const& of) {
        std::unique_ptr<char, decltype(&std::free)> const found(::realpath(of.c_str(), nullptr), &std::free);
        return found ? std::string(found.get()) : std::string();
    };
    auto const at = real(path);
    auto const root = real(folder.empty() ? "." : folder);
    return !at.empty() && at != root && !at.starts_with(root.ends_with('/') ? root : root + '/');
}

inline void rename_path(std::string const& from, std::string const& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_with_errno(errc::storage, to, "cannot be replaced by " + from);
}

}  // namespace detail

// Whether something exists at a path, including a dangling link.
inline bool is_there(std::string const& path) {
    struct stat facts {};
    return ::lstat(path.c_str(), &facts) == 0;
}

// Flushes everything written to a file so far, by any process, to the disk. Throws errc::storage.
inline void flush_file(std::string const& path) {
    detail::flush(detail::open_for_reading(path), path);
}

// Moves a complete file to its final path atomically and durably, replacing any existing file. Throws errc::storage.
inline void put_in_place(std::string const& from, std::string const& to) {
    flush_file(from);
    detail::rename_path(from, to);
    detail::flush_directory_of(to);
}

// A whole file, memory-mapped for reading: pages load on first access. Move-only; owns the bytes. If someone else
// shortens the file while it is mapped, accessing it ends the process, as with every mapping.
class mapped_file {
public:
    // Maps a regular file. Throws `code` if it cannot be opened, or is a folder or a device.
    static mapped_file open(std::string const& path, errc code = errc::storage) {
        return of(detail::open_for_reading(path, code), path, code);
    }
    // Maps a regular file that is open for reading; the caller may close it afterwards. Errors name it `path`.
    static mapped_file of(detail::descriptor const& file, std::string const& path, errc code = errc::storage) {
        auto const size = static_cast<std::size_t>(detail::facts_of(file, path, code).st_size);
        if (size == 0) return {path, nullptr, 0};
        void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
        if (at == MAP_FAILED) detail::fail_with_errno(errc::memory, path, "cannot be mapped");
        return {path, static_cast<std::byte const*>(at), size};
    }

    // Takes over the bytes; the source is left empty.
    mapped_file(mapped_file&& from) noexcept { swap(from); }
    // Swaps the two files.
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
    // The whole file as text, without checking its encoding.
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

// What to do if the target of a write exists.
enum class if_exists { refuse, replace };

// Throws errc::storage if something exists at the path.
inline void refuse_existing(std::string const& path) {
    if (is_there(path))
        throw error(errc::storage, path, "",
                    "expected a path that does not exist yet; choose another one, or remove what is there");
}

// Replaces a file atomically: bytes go to `path.partial`, commit() flushes and renames it, so a reader sees either the
// old file or the complete new one. Without a commit the partial file is removed. Only one writer per path at a time.
class replaced_file {
public:
    // Throws errc::storage if the partial file cannot be created or the target may not be replaced: it is a folder or a
    // device, or it exists and `existing` is if_exists::refuse.
    explicit replaced_file(std::string path, if_exists existing = if_exists::replace) :
        path_(std::move(path)), partial_(path_ + ".partial"), existing_(existing), fd_(-1) {
        if (existing == if_exists::refuse) refuse_existing(path_);
        struct stat there {};
        if (::stat(path_.c_str(), &there) == 0) detail::require_regular(there, path_, errc::storage);
        // A leftover of an interrupted writer is removed, not written to: it may be a link or a pipe.
        ::unlink(partial_.c_str());
        fd_ = detail::open_regular(partial_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, errc::storage,
                                   "cannot be created");
    }
    replaced_file(replaced_file const&) = delete;
    replaced_file& operator=(replaced_file const&) = delete;
    ~replaced_file() {
        if (!committed_) ::unlink(partial_.c_str());
    }

    // Appends bytes. Throws errc::storage with the system's reason (a full disk, ...).
    void write(std::span<std::byte const> bytes) { detail::write_all(fd_, partial_, bytes); }
    // Appends text. Throws as above.
    void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

    // Renames the partial file to the target. Throws errc::storage; the old file then remains, or the complete new one
    // if only flushing the directory failed.
    void commit() {
        detail::flush(fd_, partial_);
        if (existing_ == if_exists::refuse) refuse_existing(path_);
        if (::rename(partial_.c_str(), path_.c_str()) != 0)
            detail::fail_with_errno(errc::storage, path_, "cannot be replaced by " + partial_);
        committed_ = true;
        detail::flush_directory_of(path_);
    }

private:
    std::string path_;
    std::string partial_;
    if_exists existing_;
    detail::descriptor fd_;
    bool committed_ = false;
};

// Replaces a file by `text`, atomically. Throws errc::storage.
inline void replace_file(std::string const& path, std::string_view text) {
    replaced_file file(path);
    file.write(text);
    file.commit();
}

}  // namespace calm
