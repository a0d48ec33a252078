#pragma once
// One file of text, document by document.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/tensor/error.hpp"
#include "calm/tensor/utf8.hpp"
#include "calm/text/byte_stream.hpp"
#include "calm/text/json_lines.hpp"

namespace calm {

// How the documents lie in a file, by its name.
enum class text_format {
    document,  // .txt: the file is one document
    lines,     // .jsonl, .json: an object with the field "text" a line
};

// The format of a file, each also .gz or .zst; nothing for another name.
[[nodiscard]] inline std::optional<text_format> text_format_of(std::string_view path) {
    for (std::string_view const packed : {".gz", ".zst"})
        if (path.ends_with(packed)) {
            path.remove_suffix(packed.size());
            break;
        }
    if (path.ends_with(".txt")) return text_format::document;
    if (path.ends_with(".jsonl") || path.ends_with(".json")) return text_format::lines;
    return std::nullopt;
}

// How long a document may be, in bytes, for it is held in memory: more is refused.
struct text_limits {
    std::size_t line = json_lines::longest_line;  // a line of a .jsonl or .json, decompressed
    std::size_t file = std::size_t{1} << 30;      // a .txt, decompressed
};

// The error of a malformed document that ends the work: it would be left out where skipped documents are counted.
class malformed_document : public error {
public:
    // With the code, path, place and sentence of `why`.
    explicit malformed_document(error const& why) : error(why) {}
};

// Malformed documents that were left out instead of ending the work.
struct skipped_documents {
    static constexpr std::size_t most_reasons = 3;  // how many are kept

    std::uint64_t count = 0;           // of all
    std::vector<std::string> reasons;  // what was wrong with some, the first among them

    // Notes `more` of them, and what was wrong with the first of these.
    void add(std::uint64_t more, std::string const& why) {
        if (more > 0 && reasons.size() < most_reasons) reasons.push_back(why);
        count += more;
    }
};

namespace detail {

// A .txt file into `text`: its bytes as they are, without a byte order mark.
[[gnu::cold]] inline void read_document(std::string const& path, std::size_t longest, std::string& text) {
    auto const fail = [&](std::string const& place, std::string const& sentence) {
        throw error(errc::data, path, place, sentence);
    };
    text.clear();
    byte_stream bytes(path);
    for (auto part = bytes.next(); !part.empty(); part = bytes.next()) {
        if (part.size() > longest - text.size())
            fail("", "the file has more than " + std::to_string(longest) +
                         " bytes, too much for one document: cut it into several, or write JSON lines");
        text += part;
    }
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
        fail("byte 0", "the file is UTF-16: expected UTF-8, convert it (iconv -f UTF-16 -t UTF-8)");
    if (std::size_t const valid = valid_prefix(text); valid < text.size())
        fail("byte " + std::to_string(valid), "no valid UTF-8: convert the file (iconv -f LATIN1 -t UTF-8, say)");
    if (std::size_t const at = text.find('\0'); at != std::string::npos)
        fail("byte " + std::to_string(at), "a byte of zero, which no text has: is it a file of another kind?");
    if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    if (text.empty()) fail("", "the file is empty: give a file with text in it");
}

}  // namespace detail

// Visits the documents of a file in order, held one at a time. What is malformed ends the work with a
// malformed_document, of errc::data, that names file, line or byte, and cause; or, where `skip` is given, is left out
// and counted there: one line, or what remains of a damaged compressed file, or a whole .txt.
[[gnu::cold]] inline void read_documents(std::string const& path, text_limits const& limits, skipped_documents* skip,
                                         std::function<void(std::string_view)> const& visitor) {
    // Whether there is a further document; `read` says.
    auto const another = [&](auto const& read) {
        for (;;) {
            try {
                return read();
            } catch (error const& bad) {
                if (bad.code() != errc::data) throw;
                if (skip == nullptr) throw malformed_document(bad);
                skip->add(1, bad.what());
            }
        }
    };
    std::string text;
    if (text_format_of(path) == text_format::document) {
        bool read = false;
        if (another(
                [&] { return !std::exchange(read, true) && (detail::read_document(path, limits.file, text), true); }))
            visitor(text);
        return;
    }
    json_lines lines(path, limits.line);
    std::uint64_t seen = skip != nullptr ? skip->count : 0;
    bool any = false;
    while (another([&] { return lines.next(text); })) {
        any = true;
        visitor(text);
    }
    if (any || (skip != nullptr && skip->count > seen)) return;
    malformed_document const blank(
        error(errc::data, path, "", "the file has only blank lines: give one object a line"));
    if (skip == nullptr) throw blank;
    skip->add(1, blank.what());
}

}  // namespace calm
