#pragma once
// The numbers of a run: a file with one JSON object a line, and how fast the run goes.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <limits>
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
    std::string_view name;
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
    void write(std::initializer_list<metric> metrics) { write(std::span(metrics.begin(), metrics.size())); }

    [[nodiscard]] std::string const& path() const { return path_; }

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

// Seconds of a clock that never goes back.
inline double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How fast a run goes, by its last steps, and how long it still takes. The clock, in seconds, is an argument.
class throughput {
public:
    explicit throughput(std::function<double()> seconds = steady_seconds) :
        seconds_(std::move(seconds)), start_(seconds_()), marks_{{start_, 0}} {}

    // One step more, of so many tokens.
    void add(index_t tokens) {
        marks_.push_back({seconds_(), marks_.back().tokens + tokens});
        if (marks_.size() > window + 1) marks_.pop_front();
        ++steps_;
    }

    // Time that was spent on something else since the last step, e.g. an evaluation, is not counted in the speed.
    void resume() {
        double const idle = seconds_() - marks_.back().at;
        for (auto& each : marks_) each.at += idle;
    }

    [[nodiscard]] index_t steps() const { return steps_; }
    [[nodiscard]] double elapsed() const { return seconds_() - start_; }

    // Over at most the last `window` steps; NaN before there is one.
    [[nodiscard]] double tokens_per_second() const {
        return static_cast<double>(marks_.back().tokens - marks_.front().tokens) / span_of_marks();
    }
    [[nodiscard]] double seconds_per_step() const { return span_of_marks() / static_cast<double>(marks_.size() - 1); }

    // Until `steps_left` more steps are done, or `limit` seconds since the start have passed, whichever comes first.
    [[nodiscard]] double seconds_left(index_t steps_left,
                                      double limit = std::numeric_limits<double>::infinity()) const {
        double const by_clock = std::max(0.0, limit - elapsed());
        if (steps_ == 0) return steps_left > 0 ? by_clock : 0.0;
        return std::min(static_cast<double>(std::max<index_t>(0, steps_left)) * seconds_per_step(), by_clock);
    }

    static constexpr std::size_t window = 32;

private:
    struct mark {
        double at;
        index_t tokens;
    };
    [[nodiscard]] double span_of_marks() const {
        return steps_ > 0 ? marks_.back().at - marks_.front().at : std::numeric_limits<double>::quiet_NaN();
    }

    std::function<double()> seconds_;
    double start_;
    std::deque<mark> marks_;
    index_t steps_ = 0;
};

}  // namespace calm
