#pragma once
// The numbers of a run: a file with one JSON object a line.

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "calm/io/file.hpp"
#include "calm/tensor/error.hpp"
#include "calm/tensor/extents.hpp"
#include "calm/tensor/number_text.hpp"
#include "calm/tensor/quoted.hpp"

namespace calm {

// One key of a line: a number, a word, or a list of numbers.
struct metric {
    std::string_view name;  // the key
    // What is not finite becomes null.
    std::variant<double, index_t, std::uint64_t, bool, std::string_view, std::vector<double>> value;
};

namespace detail {

inline void append_json(std::string& line, double value) {
    line += std::isfinite(value) ? shortest(value) : "null";
}
inline void append_json(std::string& line, index_t value) {
    line += std::to_string(value);
}
inline void append_json(std::string& line, std::uint64_t value) {
    line += std::to_string(value);
}
inline void append_json(std::string& line, bool value) {
    line += value ? "true" : "false";
}
inline void append_json(std::string& line, std::string_view value) {
    line += json_string(value);
}
inline void append_json(std::string& line, std::vector<double> const& values) {
    line += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i > 0) line += ',';
        append_json(line, values[i]);
    }
    line += ']';
}

}  // namespace detail

// The JSON object of some metrics, on one line and in their order: numbers with as many digits as give them back,
// null where one is not finite. Words must be UTF-8.
inline std::string to_json(std::span<metric const> metrics) {
    std::string line = "{";
    for (auto const& [name, value] : metrics) {
        if (line.size() > 1) line += ',';
        detail::append_json(line, name);
        line += ':';
        std::visit([&](auto const& v) { detail::append_json(line, v); }, value);
    }
    return line + "}";
}

// Appends lines to a file, e.g. metrics.jsonl; each is on its way to the disk before write() returns.
class metrics_log {
public:
    // To keep the whole file.
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

    // Opens or creates the file, cut to its first `keep` bytes where it has more: a run that goes on from a checkpoint
    // writes again what came after it. A line that an earlier run left unfinished is ended first. Throws errc::storage.
    explicit metrics_log(std::string path, std::uint64_t keep = all) : path_(std::move(path)), file_(-1) {
        bool const made = !detail::is_there(path_);
        file_ = detail::open_regular(path_, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, errc::storage,
                                     "cannot be opened for appending");
        if (made) detail::flush_directory_of(path_);
        if (bytes() > keep && detail::uninterrupted([&] { return ::ftruncate(file_.get(), as_offset(keep)); }) != 0)
            detail::fail_with_errno(errc::storage, path_, "cannot be cut to where a run goes on");
        if (!ends_in_newline()) put("\n");
    }

    // How many bytes the file has. Throws errc::storage where that cannot be read.
    [[nodiscard]] std::uint64_t bytes() const {
        return static_cast<std::uint64_t>(detail::facts_of(file_, path_).st_size);
    }

    // Throws errc::storage where the line cannot be written.
    void write(std::span<metric const> metrics) { put(to_json(metrics) + "\n"); }
    // The same of metrics that are written out in the call.
    void write(std::initializer_list<metric> metrics) { write(std::span(metrics.begin(), metrics.size())); }

    // What was written is on the disk. Throws errc::storage.
    void flush() const { detail::flush(file_, path_); }

    // The path that it was opened by.
    [[nodiscard]] std::string const& path() const { return path_; }

private:
    static off_t as_offset(std::uint64_t bytes) { return static_cast<off_t>(bytes); }
    // Also an empty file.
    [[nodiscard]] bool ends_in_newline() const {
        auto const size = bytes();
        char last = '\n';
        if (size > 0 && detail::uninterrupted([&] { return ::pread(file_.get(), &last, 1, as_offset(size - 1)); }) != 1)
            detail::fail_with_errno(errc::storage, path_, "its end cannot be read");
        return last == '\n';
    }
    void put(std::string const& text) { detail::write_all(file_, path_, std::as_bytes(std::span(text))); }

    std::string path_;
    detail::descriptor file_;
};

}  // namespace calm
