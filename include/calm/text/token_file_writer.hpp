#pragma once
// Writes token files under a temporary name, one process at a time.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/file.hpp"
#include "calm/text/token_file.hpp"

namespace calm {

// Writes a token file under a temporary name and renames it on commit(); without commit() nothing remains. Other
// processes that want to write the same file wait.
class token_file_writer {
public:
    // Waits until no other process writes this file; calls `wait` once if that takes time. If `text` is given, the file
    // is never more readable than the text file. Throws errc::storage if it cannot be written.
    template <class Wait> token_file_writer(std::string path, Wait const& wait, struct stat const* text = nullptr);
    token_file_writer(token_file_writer const&) = delete;
    token_file_writer& operator=(token_file_writer const&) = delete;
    ~token_file_writer() {
        if (file_.get() >= 0 && !path_.empty()) ::unlink(partial_.c_str());  // while it is locked
    }
    // A writer to an unnamed file in a folder ("": the current one). No other process can open it, and it disappears
    // with its last mapping. Throws errc::storage if it cannot be created.
    [[nodiscard]] static token_file_writer nameless(std::string const& folder);

    // Whether another process wrote the file while this one waited. Then read that file again and write nothing.
    [[nodiscard]] bool is_late() const noexcept { return waited_; }

    // Adds ids of an entry, in any number of parts before its end. Throws errc::storage.
    void add(std::span<token_id const> ids) {
        append(std::as_bytes(ids));
        tokens_ += ids.size();
    }
    // Ends the entry and sets its use.
    void end(entry_use use) {
        ends_.push_back(tokens_ | static_cast<std::uint64_t>(use) << 62);
        documents_ += use != entry_use::training;
    }
    // Adds a whole entry. Throws errc::storage.
    void add(std::span<token_id const> ids, entry_use use) {
        add(ids);
        end(use);
    }
    // The number of documents added.
    [[nodiscard]] std::uint64_t documents() const noexcept { return documents_; }

    // Completes the header and publishes the file. Throws errc::storage; an existing file then remains.
    void commit(token_file_facts facts);
    // Completes an unnamed file and maps it: the only way to read it. Throws errc::storage.
    [[nodiscard]] mapped_file mapped(token_file_facts facts);

private:
    token_file_writer(detail::descriptor file, std::string called) :
        partial_(std::move(called)), file_(std::move(file)) {}
    void complete(token_file_facts facts);
    void append(std::span<std::byte const> bytes);
    void flush(std::size_t at);

    std::string path_;
    std::string partial_;
    detail::descriptor file_{-1};
    bool waited_ = false;
    std::vector<std::byte> portion_;
    portion_sum sum_;
    std::size_t written_ = sizeof(token_file_facts);
    std::uint64_t tokens_ = 0;
    std::uint64_t documents_ = 0;
    std::vector<std::uint64_t> ends_;
};

namespace detail {

inline std::int64_t nanoseconds(struct timespec const& t) {
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// The permissions for a file in `group` that make it never more readable than the text file itself. Only its owner may
// write it.
inline mode_t permissions_like(struct stat const& text, gid_t group) {
    mode_t const all = text.st_mode & 0444;
    mode_t const of_another_group = (all & 0404) | (all & (all << 3) & 0040);
    return (group == text.st_gid ? all : of_another_group) | 0600;
}

}  // namespace detail

template <class Wait>
token_file_writer::token_file_writer(std::string path, Wait const& wait, struct stat const* text) :
    path_(std::move(path)), partial_(path_ + ".partial") {
    mode_t mode = text != nullptr ? detail::permissions_like(*text, text->st_gid) : mode_t{0644};
    for (bool told = false;;) {
        auto file =
            detail::open_regular(partial_, O_RDWR | O_CREAT | O_NOFOLLOW, errc::storage, "cannot be created", mode);
        while (::flock(file.get(), told ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK && !told) wait();
            if (errno != EINTR && (errno != EWOULDBLOCK || told))
                detail::fail_with_errno(errc::storage, partial_, "cannot be locked");
            told = true;
        }
        // The previous owner of the lock may have renamed or removed the file.
        struct stat mine {
        }, there{};
        if (::fstat(file.get(), &mine) == 0 && ::stat(partial_.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev) {
            waited_ = told;
            if (uninterrupted([&] { return ::ftruncate(file.get(), 0); }) != 0)
                detail::fail_with_errno(errc::storage, partial_, "cannot be emptied");
            if (text != nullptr) mode &= detail::permissions_like(*text, mine.st_gid);
            if (::fchmod(file.get(), mine.st_mode & mode) != 0)
                detail::fail_with_errno(errc::storage, partial_, "cannot be given the permissions of its text");
            file_ = std::move(file);
            portion_.reserve(portion_sum::portion);
            return;
        }
    }
}

inline void token_file_writer::flush(std::size_t at) {
    for (std::span<std::byte const> left = portion_; !left.empty();) {
        auto const count =
            uninterrupted([&] { return ::pwrite(file_.get(), left.data(), left.size(), static_cast<off_t>(at)); });
        if (count < 0) detail::fail_with_errno(errc::storage, partial_, "cannot be written");
        left = left.subspan(static_cast<std::size_t>(count));
        at += static_cast<std::size_t>(count);
    }
}

[[gnu::cold]] inline void token_file_writer::append(std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
        auto const some = bytes.first(std::min(bytes.size(), portion_sum::portion - portion_.size()));
        portion_.insert(portion_.end(), some.begin(), some.end());
        bytes = bytes.subspan(some.size());
        if (portion_.size() < portion_sum::portion) continue;
        sum_.add(portion_);
        flush(written_);
        written_ += portion_.size();
        portion_.clear();
    }
}

[[gnu::cold]] inline token_file_writer token_file_writer::nameless(std::string const& folder) {
    std::string name = (folder.empty() ? "." : folder) + "/.calm-tokens-XXXXXX";
    detail::descriptor file(::mkostemp(name.data(), O_CLOEXEC));
    if (file.get() < 0) detail::fail_with_errno(errc::storage, name, "cannot be created");
    ::unlink(name.c_str());
    return {std::move(file), std::move(name)};
}

[[gnu::cold]] inline void token_file_writer::complete(token_file_facts facts) {
    facts.tokens = tokens_;
    facts.entries = ends_.size();
    facts.documents = documents_;
    token_id const none = 0;
    if (tokens_ % 2 == 1) append(std::as_bytes(std::span(&none, 1)));
    append(std::as_bytes(std::span(ends_)));
    sum_.add(portion_);
    flush(written_);
    struct timespec clock {};
    ::clock_gettime(CLOCK_REALTIME, &clock);
    facts.made = detail::nanoseconds(clock);
    facts.inode = detail::facts_of(file_, partial_).st_ino;
    facts.body = sum_.value();
    facts.header = detail::header_sum(facts);
    auto const header = std::as_bytes(std::span(&facts, 1));
    portion_.assign(header.begin(), header.end());
    flush(0);
}

[[gnu::cold]] inline void token_file_writer::commit(token_file_facts facts) {
    complete(facts);
    // Not flushed to the disk: after a crash of the machine the file is damaged, which is detected, and it is rebuilt.
    if (::rename(partial_.c_str(), path_.c_str()) != 0)
        detail::fail_with_errno(errc::storage, path_, "cannot be put in place");
    file_.close();
}

[[gnu::cold]] inline mapped_file token_file_writer::mapped(token_file_facts facts) {
    complete(facts);
    return mapped_file::of(file_, partial_);
}

}  // namespace calm
