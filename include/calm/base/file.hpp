#pragma once
// Files as the library meets them: mapped to be read, written beside and renamed to be replaced.
//
// What is read is a regular file; a pipe or a device is refused by name. A path that somebody gives may be a link; of
// what is found in a folder only links that stay in it are followed (`leads_outside`). What is written takes the place
// of a link and never goes through it.

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

// Throws `code` unless these are facts of a regular file: "expected a file, found a pipe".
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

// Opens a regular file, never a pipe or device: without O_NONBLOCK the opening of a pipe that nobody writes never ends.
// One that is made has the permissions of `mode`, as far as the process grants them.
inline descriptor open_regular(std::string const& path, int flags, errc code, char const* doing, mode_t mode = 0666) {
    descriptor file(
        uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode); }));
    if (file.get() < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
        throw error(code, path, "", "is a link, which is not followed: remove it, or put the file itself there");
    if (file.get() < 0) fail_with_errno(code, path, doing);
    require_regular(facts_of(file, path, code), path, code);
    return file;
}
// Throws `code` where there is none, or it cannot be read.
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

// What was written to a file so far, by whomever, is on the disk. Throws errc::storage.
inline void flush(descriptor const& file, std::string const& path) {
    if (uninterrupted([&] { return ::fsync(file.get()); }) != 0)
        fail_with_errno(errc::storage, path, "cannot be flushed to the disk");
}

// What was made, renamed or removed in a directory ("" is the present one) lasts once it is flushed. Throws
// errc::storage; that a file system has no such thing, or the directory may be written and not read, is no error.
inline void flush_directory(std::string const& name) {
    std::string const path = name.empty() ? "." : name;
    descriptor const directory(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    bool const opened = directory.get() >= 0;
    if (opened && uninterrupted([&] { return ::fsync(directory.get()); }) == 0) return;
    if (opened ? errno != EINVAL && errno != ENOTSUP && errno != EROFS : errno != EACCES)
        fail_with_errno(errc::storage, path, "the directory cannot be flushed to the disk");
}
// The same of the directory that a path stands in.
inline void flush_directory_of(std::string const& path) {
    auto const slash = path.find_last_of('/');
    flush_directory(slash == std::string::npos ? "" : path.substr(0, slash + 1));
}

// Whether what stands at a path lies, its links followed, outside of a folder. What leads nowhere does not.
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

// Whether something stands at a path, a link that leads nowhere too.
inline bool is_there(std::string const& path) {
    struct stat facts {};
    return ::lstat(path.c_str(), &facts) == 0;
}

// What was written to a file so far, by whomever, is on the disk. Throws errc::storage.
inline void flush_file(std::string const& path) {
    detail::flush(detail::open_for_reading(path), path);
}

// Moves a file that is complete to its place, in one step, and to the disk: what stood there is replaced. Throws
// errc::storage.
inline void put_in_place(std::string const& from, std::string const& to) {
    flush_file(from);
    detail::rename_path(from, to);
    detail::flush_directory_of(to);
}

// The bytes of a whole file, mapped for reading: pages come when they are touched. Move-only; the bytes live as long
// as the object. A file shortened by someone else while it is mapped ends the process, as with every mapping.
class mapped_file {
public:
    // Maps a regular file. Throws the code given where it cannot be opened, or is a folder or a device.
    static mapped_file open(std::string const& path, errc code = errc::storage) {
        return of(detail::open_for_reading(path, code), path, code);
    }
    // The same of a regular file that is open for reading, and may be closed then; `path` is what errors call it.
    static mapped_file of(detail::descriptor const& file, std::string const& path, errc code = errc::storage) {
        auto const facts = detail::facts_of(file, path, code);
        auto const size = static_cast<std::size_t>(facts.st_size);
        if (size == 0) return {path, facts, nullptr, 0};
        void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
        if (at == MAP_FAILED) detail::fail_with_errno(errc::memory, path, "cannot be mapped");
        return {path, facts, static_cast<std::byte const*>(at), size};
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
    // As it was when it was opened: owner, permissions, times.
    [[nodiscard]] struct stat const& facts() const noexcept { return facts_; }
    // The whole file, from its first byte.
    [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return {data_, size_}; }
    // The same, without a check of its encoding.
    [[nodiscard]] std::string_view text() const noexcept { return {reinterpret_cast<char const*>(data_), size_}; }

private:
    mapped_file(std::string path, struct stat const& facts, std::byte const* data, std::size_t size) :
        path_(std::move(path)), facts_(facts), data_(data), size_(size) {}
    void swap(mapped_file& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(facts_, other.facts_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    std::string path_;
    struct stat facts_ {};
    std::byte const* data_ = nullptr;
    std::size_t size_ = 0;
};

// What happens to what stands where something is to be written.
enum class if_exists { refuse, replace };

// Throws errc::storage where something stands at the path.
inline void refuse_existing(std::string const& path) {
    if (is_there(path))
        throw error(errc::storage, path, "",
                    "expected a path where nothing stands yet; choose another one, or remove what is there");
}

// A file being replaced: the bytes go to `path.partial` beside it, commit() flushes them to the disk and renames, so
// a reader meets the old file or the whole new one. Without a commit the part is removed. One writer a path at a time.
class replaced_file {
public:
    // Throws errc::storage where the part cannot be created, or what stands there may not be replaced: a folder, a
    // device, or with if_exists::refuse anything.
    explicit replaced_file(std::string path, if_exists existing = if_exists::replace) :
        path_(std::move(path)), partial_(path_ + ".partial"), existing_(existing), fd_(-1) {
        if (existing == if_exists::refuse) refuse_existing(path_);
        struct stat there {};
        if (::stat(path_.c_str(), &there) == 0) detail::require_regular(there, path_, errc::storage);
        // What an interrupted writer left is removed and not written to: it may be a link, or a pipe.
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
    // Appends a text. Throws as above.
    void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

    // Makes the new file the file. Throws errc::storage; then the old file still stands, or, where only the directory
    // could not be flushed, the whole new one.
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

// A whole file of a text, replaced. Throws errc::storage.
inline void replace_file(std::string const& path, std::string_view text) {
    replaced_file file(path);
    file.write(text);
    file.commit();
}

}  // namespace calm
