#pragma once
// The numbers of a run: a file with one JSON object a line.

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "calm/tensor/error.hpp"
#include "calm/tensor/extents.hpp"

namespace calm {

// One key of a line: a number, a word, or a list of numbers.
struct metric {
    std::string_view name;  // the key
    // What is not finite becomes null.
    std::variant<double, index_t, std::uint64_t, bool, std::string_view, std::vector<double>> value;
};

namespace detail {

inline void append_json(std::string& line, double value) {
    if (!std::isfinite(value)) {
        line += "null";
        return;
    }
    char digits[32];
    line.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
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
    constexpr std::string_view hex = "0123456789abcdef";
    line += '"';
    for (char const c : value) {
        auto const byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            (line += '\\') += c;
        else if (byte < 0x20)
            ((line += "\\u00") += hex[byte >> 4]) += hex[byte & 15U];
        else
            line += c;
    }
    line += '"';
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
    // Opens or creates the file; a line that an earlier run left unfinished is ended first. Throws errc::storage.
    explicit metrics_log(std::string path) : path_(std::move(path)) {
        bool const unfinished = !ends_in_newline(path_);
        file_.open(path_, std::ios::binary | std::ios::app);
        if (!file_) throw error(errc::storage, path_, "", "cannot be opened for appending; does its folder exist?");
        if (unfinished) put("\n");
    }

    // The same of a file cut to its first `keep` bytes, where it has more: a run that goes on from a checkpoint writes
    // again what came after it.
    metrics_log(std::string path, std::uint64_t keep) : metrics_log(cut(std::move(path), keep)) {}

    // How many bytes the file has.
    [[nodiscard]] std::uint64_t bytes() const {
        std::error_code failed;
        auto const size = std::filesystem::file_size(path_, failed);
        return failed ? 0 : size;
    }

    // Throws errc::storage where the line cannot be written.
    void write(std::span<metric const> metrics) { put(to_json(metrics) + "\n"); }
    // The same of metrics that are written out in the call.
    void write(std::initializer_list<metric> metrics) { write(std::span(metrics.begin(), metrics.size())); }

    [[nodiscard]] std::string const& path() const { return path_; }  // as it was opened

private:
    static std::string cut(std::string path, std::uint64_t keep) {
        std::error_code failed;
        if (auto const size = std::filesystem::file_size(path, failed); failed || size <= keep) return path;
        std::filesystem::resize_file(path, keep, failed);
        if (failed) throw error(errc::storage, path, "", "cannot be cut to where a run goes on: " + failed.message());
        return path;
    }
    // Also of an empty file, or of none.
    static bool ends_in_newline(std::string const& path) {
        std::ifstream file(path, std::ios::binary | std::ios::ate);
        if (!file || file.tellg() <= 0) return true;
        file.seekg(-1, std::ios::end);
        return file.get() == '\n';
    }
    void put(std::string const& text) {
        file_ << text << std::flush;
        if (!file_) throw error(errc::storage, path_, "", "cannot be written; is the disk full?");
    }

    std::string path_;
    std::ofstream file_;
};

}  // namespace calm
