#pragma once
/// \file
/// The metrics of a run: a file with one JSON object per line.
/// \shows{tests/runs/metrics_log_test.cpp,a_line_is_one_json_object}

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/evaluate/detail/metric.hpp"

namespace calm {

/// Appends lines to a file, e.g. metrics.jsonl; write() returns after the system has taken the line.
class metrics_log {
public:
    /// Keeps the whole file.
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

    /// Opens or creates the file and cuts it to its first `keep` bytes if it is longer: a run that resumes from a
    /// checkpoint writes the later lines again. Ends a line that an earlier run left unfinished. Throws errc::storage.
    explicit metrics_log(std::string path, std::uint64_t keep = all) : path_(std::move(path)), file_(-1) {
        bool const made = !is_there(path_);
        file_ = detail::open_regular(path_, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, errc::storage,
                                     "cannot be opened for appending");
        if (made) detail::flush_directory_of(path_);
        if (bytes() > keep && uninterrupted([&] { return ::ftruncate(file_.get(), as_offset(keep)); }) != 0)
            detail::fail_with_errno(errc::storage, path_, "cannot be truncated to where the run resumes");
        if (!ends_in_newline()) put("\n");
    }

    /// Size of the file in bytes. Throws errc::storage if it cannot be read.
    [[nodiscard]] std::uint64_t bytes() const {
        return static_cast<std::uint64_t>(detail::facts_of(file_, path_).st_size);
    }

    /// Appends one line. Throws errc::storage if it cannot be written.
    void write(std::span<metric const> metrics) { put(to_json(metrics) + "\n"); }
    /// Takes metrics that are listed in the call.
    void write(std::initializer_list<metric> metrics) { write(std::span(metrics.begin(), metrics.size())); }

    /// Flushes all lines to disk. Throws errc::storage.
    void flush() const { detail::flush(file_, path_); }

    /// The path that it was opened with.
    [[nodiscard]] std::string const& path() const { return path_; }

private:
    static off_t as_offset(std::uint64_t bytes) { return static_cast<off_t>(bytes); }
    // Also true for an empty file.
    [[nodiscard]] bool ends_in_newline() const {
        auto const size = bytes();
        char last = '\n';
        if (size > 0 && uninterrupted([&] { return ::pread(file_.get(), &last, 1, as_offset(size - 1)); }) != 1)
            detail::fail_with_errno(errc::storage, path_, "its end cannot be read");
        return last == '\n';
    }
    void put(std::string const& text) { detail::write_all(file_, path_, std::as_bytes(std::span(text))); }

    std::string path_;
    detail::descriptor file_;
};

}  // namespace calm
