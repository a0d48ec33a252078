#pragma once
// Checks whether bytes are UTF-8 text, and explains why not.

#include <cstddef>
#include <optional>
#include <string_view>

#include "calm/base/detail/utf8.hpp"

namespace calm {

// The mark that a UTF-8 text may begin with; not part of the text.
inline constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Why bytes are not text: the first offending byte and a message.
struct encoding_fault {
    std::size_t byte;      // its offset in the source
    char const* sentence;  // what is wrong, and what to do
};

// Detects the byte order mark of UTF-16 or UTF-32 at the beginning.
[[nodiscard]] inline std::optional<encoding_fault> mark_of_other_encoding(std::string_view source) {
    if (source.starts_with(std::string_view("\xff\xfe\0\0", 4)) ||
        source.starts_with(std::string_view("\0\0\xfe\xff", 4)))
        return encoding_fault{0, "the text is UTF-32: expected UTF-8, convert it (iconv -f UTF-32 -t UTF-8)"};
    if (source.starts_with("\xff\xfe") || source.starts_with("\xfe\xff"))
        return encoding_fault{0, "the text is UTF-16: expected UTF-8, convert it (iconv -f UTF-16 -t UTF-8)"};
    return std::nullopt;
}

// The first byte that is zero or not UTF-8.
[[nodiscard]] inline std::optional<encoding_fault> fault_of_encoding(std::string_view bytes) {
    std::size_t const valid = valid_prefix(bytes);
    if (std::size_t const zero = bytes.substr(0, valid).find('\0'); zero != std::string_view::npos)
        return encoding_fault{zero,
                              "a zero byte, which text does not contain: is it UTF-16 (iconv -f UTF-16LE -t UTF-8), or "
                              "a file of another kind?"};
    if (valid < bytes.size()) return encoding_fault{valid, "invalid UTF-8: convert it (iconv -f LATIN1 -t UTF-8, say)"};
    return std::nullopt;
}

// Why a source read from its beginning is not UTF-8 text: another encoding's mark, else the first bad byte.
[[nodiscard]] inline std::optional<encoding_fault> fault_of_source(std::string_view source) {
    auto const mark = mark_of_other_encoding(source);
    return mark ? mark : fault_of_encoding(source);
}

}  // namespace calm
