#pragma once
// Reads one text file, document by document.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/utf8.hpp"
#include "calm/base/error.hpp"
#include "calm/text/detail/byte_stream.hpp"
#include "calm/text/detail/json_lines.hpp"
#include "calm/text/detail/text_encoding.hpp"

namespace calm {

// How documents are stored in a file, by its name.
enum class text_format {
    document,  // .txt: the file is one document
    lines,     // .jsonl, .json: one object with the field "text" per line
};

// The format of a file, also with .gz or .zst; nullopt for another name.
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

// Maximum bytes of a document; larger ones are refused.
struct text_limits {
    std::size_t line = detail::json_lines::longest_line;  // held in memory
    std::size_t file = std::size_t{1} << 30;              // a .txt, decompressed; read in parts, so it may be large
};

// The error of a malformed document that is fatal because malformed documents are not skipped.
class malformed_document : public error {
public:
    // With the code, path, place and message of `why`.
    explicit malformed_document(error const& why) : error(why) {}
};

// Malformed documents that were skipped, grouped by cause.
struct skipped_documents {
    // One cause.
    struct cause {
        std::string sentence;     // without the file and the place
        std::uint64_t count = 0;  // of documents
        std::string first;        // the full message for the first of them
    };
    static constexpr std::size_t most_causes = 20;  // further causes are counted as one

    std::uint64_t count = 0;    // all of them
    std::vector<cause> causes;  // in order of first occurrence

    // Counts one document and why it was skipped.
    void add(error const& why) {
        ++count;
        std::string sentence(why.reason());
        auto const same = [&](cause const& one) { return one.sentence == sentence; };
        auto found = std::find_if(causes.begin(), causes.end(), same);
        if (found == causes.end() && causes.size() + 1 >= most_causes) {
            sentence = "another cause";
            found = std::find_if(causes.begin(), causes.end(), same);
        }
        if (found == causes.end()) found = causes.insert(found, {std::move(sentence), 0, why.what()});
        ++found->count;
    }
};

namespace detail {

// Reads the bytes of a .txt in parts that end with whole characters, or with invalid bytes. Calls part(bytes, ended),
// and once more at the end.
template <class Part> void read_parts(std::string const& path, Part const& part) {
    byte_stream bytes(path);
    std::string held;
    for (auto block = bytes.next(); !block.empty(); block = bytes.next()) {
        held += block;
        if (held.size() < 4) continue;  // as long as the longest mark or character
        std::size_t whole = held.size() - std::min<std::size_t>(held.size(), 3);
        while (whole < held.size() && first_character(std::string_view(held).substr(whole)).kind != utf8_kind::prefix)
            ++whole;
        part(std::string_view(held).substr(0, whole), false);
        held.erase(0, whole);
    }
    part(std::string_view(held), true);
}

// Throws errc::data unless a file is one document of UTF-8 of at most `longest` bytes.
[[gnu::cold]] inline void check_document(std::string const& path, std::size_t longest) {
    auto const fail = [&](std::string const& place, std::string const& sentence) {
        throw error(errc::data, path, place, sentence);
    };
    std::size_t at = 0;
    bool has_text = false;
    read_parts(path, [&](std::string_view part, bool) {
        if (part.size() > longest - at)
            fail("", "the file has more than " + std::to_string(longest) +
                         " bytes, too much for one document: cut it into several, or write JSON lines");
        if (auto const fault = at == 0 ? fault_of_source(part) : fault_of_encoding(part))
            fail("byte " + std::to_string(at + fault->byte), fault->sentence);
        has_text = has_text || !(part.empty() || (at == 0 && part == byte_order_mark));
        at += part.size();
    });
    if (!has_text) fail("", "the file is empty: give a file with text in it");
}

}  // namespace detail

// Receives documents in parts that end with whole characters; `ends` is true for the last part of each.
using part_visitor = std::function<void(std::string_view part, bool ends)>;

// Visits the documents of a file in order. A line of JSON is one part; a .txt is read twice, first to validate it, and
// never held whole. Malformed content throws malformed_document (errc::data), which names file, line or byte, and
// cause. If `skip` is given, the content is skipped and counted there instead: one line, the rest of a damaged
// compressed file, or a whole .txt. If the visitor throws errc::data without a path, the error is rethrown with the
// path of the file.
[[gnu::cold]] inline void read_documents(std::string const& path, text_limits const& limits, skipped_documents* skip,
                                         part_visitor const& visitor) {
    auto const visit = [&](std::string_view part, bool ends, std::string const& place) {
        try {
            visitor(part, ends);
        } catch (error const& wrong) {
            if (wrong.code() != errc::data || !wrong.path().empty()) throw;
            throw error(errc::data, path, place, wrong.what());
        }
    };
    // Whether there is another document, as `read` reports. Skips malformed ones.
    auto const another = [&](auto const& read) {
        for (;;) {
            try {
                return read();
            } catch (error const& bad) {
                if (bad.code() != errc::data) throw;
                if (skip == nullptr) throw malformed_document(bad);
                skip->add(bad);
            }
        }
    };
    if (text_format_of(path) == text_format::document) {
        bool checked = false;
        if (!another(
                [&] { return !std::exchange(checked, true) && (detail::check_document(path, limits.file), true); }))
            return;
        bool begun = false;
        detail::read_parts(path, [&](std::string_view part, bool ended) {
            if (!std::exchange(begun, true) && part.starts_with(byte_order_mark)) part.remove_prefix(3);
            visit(part, ended, "");
        });
        return;
    }
    detail::json_lines lines(path, limits.line);
    std::uint64_t seen = skip != nullptr ? skip->count : 0;
    bool any = false;
    for (std::string_view text; another([&] { return lines.next(text); });) {
        any = true;
        visit(text, true, "line " + std::to_string(lines.number()));
    }
    if (any || (skip != nullptr && skip->count > seen)) return;
    malformed_document const blank(
        error(errc::data, path, "", "the file has only blank lines: give one object per line"));
    if (skip == nullptr) throw blank;
    skip->add(blank);
}

}  // namespace calm
