#pragma once
// The lines of a file that may be compressed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "calm/base/error.hpp"
#include "calm/text/detail/byte_stream.hpp"

namespace calm {

// Reads line after line, holding one line and one block in memory. Drops a byte order mark before the first line.
class line_reader {
public:
    // Lines of at most `longest` bytes. Throws as byte_stream.
    line_reader(std::string path, std::size_t longest) : bytes_(std::move(path)), longest_(longest) {}

    // The next line without its end; false at the end of the file. Throws errc::data for a line that is too long, which
    // is skipped. Throws as byte_stream, which ends the file and discards a partial last line.
    [[nodiscard]] bool next(std::string& line);

    // The number of the last line returned or reported in an error, from 1.
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    [[nodiscard]] std::string const& path() const noexcept { return bytes_.path(); }  // as it was opened

private:
    byte_stream bytes_;
    std::size_t longest_;
    std::string_view rest_;  // of a block, still unread
    std::uint64_t number_ = 0;
};

[[gnu::cold]] inline bool line_reader::next(std::string& line) {
    line.clear();
    bool any = false;
    bool too_long = false;
    for (bool ended = false; !ended;) {
        if (rest_.empty()) rest_ = bytes_.next();
        if (rest_.empty()) break;
        any = true;
        std::size_t const end = rest_.find('\n');
        ended = end != std::string_view::npos;
        std::string_view const part = rest_.substr(0, end);
        rest_.remove_prefix(ended ? end + 1 : rest_.size());
        too_long = too_long || part.size() > longest_ - line.size();
        if (!too_long) line += part;
    }
    if (!any) return false;
    ++number_;
    if (too_long)
        throw error(errc::data, path(), "line " + std::to_string(number_),
                    sentence("the line has more than ", longest_,
                             " bytes: expected one document per line, is a line break missing?"));
    if (number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    return true;
}

}  // namespace calm
