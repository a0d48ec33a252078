#pragma once
// Writes a directory under a temporary name and renames it to its path as a whole.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"

namespace calm {

// Creates a directory and its missing parents, each flushed in its parent directory. Throws errc::storage.
inline void make_directories(std::filesystem::path const& path) {
    namespace fs = std::filesystem;
    if (path.empty() || path == path.root_path()) return;
    std::error_code failed;
    if (!path.has_filename()) return make_directories(path.parent_path());
    if (!fs::is_directory(path, failed)) {
        make_directories(path.parent_path());
        fs::create_directory(path, failed);
        if (failed)
            throw error(errc::storage, path.string(), "", "the directory cannot be created: " + failed.message());
    }
    // Even if it exists: its creator may have died before flushing.
    if (path != "." && path.filename() != "..") detail::flush_directory(path.parent_path());
}

namespace detail {

// Flushes all regular files and directories of a tree, which may be a single file. Throws errc::storage.
inline void flush_tree(std::filesystem::path const& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    auto const flush = [](fs::path const& at, fs::file_type type) {
        if (type == fs::file_type::regular) flush_file(at.string());
        if (type == fs::file_type::directory) flush_directory(at);
    };
    auto const type = fs::symlink_status(path, failed).type();
    if (type == fs::file_type::directory)
        for (fs::recursive_directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
            std::error_code unknown;
            flush(at->path(), at->symlink_status(unknown).type());
        }
    if (failed) throw error(errc::storage, path.string(), "", "cannot be flushed: " + failed.message());
    flush(path, type);
}

// Renames a directory to its path; an existing directory is exchanged atomically and then removed. Throws
// errc::storage. The old directory then remains, or, if only flushing the parent directory failed, the new one.
inline void put_directory(std::string const& from, std::string const& to) {
    if (!is_there(to)) {
        rename_path(from, to);
        return flush_directory_of(to);
    }
    std::error_code ignored;
#ifdef RENAME_EXCHANGE
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
        flush_directory_of(to);
        std::filesystem::remove_all(from, ignored);
        return;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        fail_with_errno(errc::storage, to, "cannot be replaced by " + from);
#endif
    // Without exchange in the file system: for a moment only the old directory exists, under its new name.
    auto const previous = to + ".previous";
    std::filesystem::remove_all(previous, ignored);
    rename_path(to, previous);
    try {
        rename_path(from, to);
    } catch (error const&) {
        rename_path(previous, to);
        throw;
    }
    flush_directory_of(to);
    std::filesystem::remove_all(previous, ignored);
}

}  // namespace detail

// Files go to `path.partial`; commit() renames the directory to its path. An existing directory is exchanged atomically
// and stays valid until then; its files that were not rewritten are kept as the same files, so a log open for appending
// continues. Without a commit the partial directory is removed. Only one writer per path at a time.
class replaced_directory {
public:
    // Throws errc::storage if the path exists and may not be replaced, or the partial directory cannot be created.
    explicit replaced_directory(std::string const& path, if_exists existing = if_exists::refuse) :
        path_(without_slash(path)), partial_(path_ + ".partial"), existing_(existing) {
        if (existing == if_exists::refuse)
            refuse_existing(path_);
        else if (std::error_code unknown; there() && !std::filesystem::is_directory(path_, unknown))
            throw error(errc::storage, path_, "", "expected a directory to replace, found a file");
        std::error_code failed;
        std::filesystem::remove_all(partial_, failed);
        if (!failed) std::filesystem::create_directory(partial_, failed);
        if (failed) throw error(errc::storage, partial_, "", "cannot be created: " + failed.message());
    }
    replaced_directory(replaced_directory const&) = delete;
    replaced_directory& operator=(replaced_directory const&) = delete;
    ~replaced_directory() {
        std::error_code ignored;
        if (!committed_) std::filesystem::remove_all(partial_, ignored);
    }

    // The path at which to write a file of the new directory. Throws errc::usage if the name is a path.
    [[nodiscard]] std::string path(std::string_view name) const {
        if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos)
            throw error(errc::usage, path_, "", "expected the name of a file in it, found '" + std::string(name) + "'");
        return (std::filesystem::path(partial_) / name).string();
    }
    // Writes and flushes one file of the new directory. Throws errc::storage.
    void write(std::string_view name, std::string_view bytes) const { replace_file(path(name), bytes); }

    // A file of this name in the old directory is not kept.
    void leave_out(std::string_view name) { left_out_.emplace(name); }

    // Renames the new directory to its path. Throws errc::storage; the old one then remains.
    void commit() {
        if (existing_ == if_exists::refuse) refuse_existing(path_);
        if (there()) keep_the_rest();
        detail::flush_directory(partial_);
        detail::put_directory(partial_, path_);
        committed_ = true;
    }

private:
    static std::string without_slash(std::string const& path) {
        auto p = std::filesystem::path(path).lexically_normal();
        if (!p.has_filename()) p = p.parent_path();
        if (p.empty() || p == "." || p == "..")
            throw error(errc::usage, path, "", "expected the path of a directory to write");
        return p.string();
    }
    [[nodiscard]] bool there() const {
        std::error_code ignored;
        return std::filesystem::exists(path_, ignored);
    }
    // As hard links to the same files; copied where the file system has no links. New files and directories are
    // flushed, because the old directory is removed.
    void keep_the_rest() const {
        using options = std::filesystem::copy_options;
        constexpr auto all = options::recursive | options::copy_symlinks;
        std::error_code failed;
        std::filesystem::directory_iterator entry(path_, failed);
        for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
            auto const name = entry->path().filename();
            if (left_out_.contains(name.string())) continue;
            auto const to = std::filesystem::path(partial_) / name;
            std::error_code absent;
            if (std::filesystem::exists(std::filesystem::symlink_status(to, absent))) continue;
            std::filesystem::copy(entry->path(), to, all | options::create_hard_links, failed);
            bool const copied = static_cast<bool>(failed);
            if (copied) std::filesystem::copy(entry->path(), to, all | options::overwrite_existing, failed);
            if (failed) break;
            if (copied || std::filesystem::is_directory(std::filesystem::symlink_status(to, absent)))
                detail::flush_tree(to);
        }
        if (failed) throw error(errc::storage, path_, "", "its other files cannot be copied: " + failed.message());
    }

    std::string path_;
    std::string partial_;
    if_exists existing_;
    std::set<std::string> left_out_;
    bool committed_ = false;
};

}  // namespace calm
