#pragma once
/// \file
/// Reads whole texts into memory, for programs that hold their documents. Texts of any size: build_corpus.hpp.
/// \shows{tests/text/read_text_test.cpp,documents_come_in_the_order_of_the_files}

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/text/documents.hpp"

namespace calm {

/// The documents of a list of SPECs, as `calm train` reads them. A SPEC is a .txt (one document), or a .jsonl or .json
/// (one object with "text" per line), each also as .gz or .zst. It may be a folder or a pattern ("news/*.jsonl"), too.
/// `stories:N` makes stories of about 4 N bytes. Documents of more than 10,000 words come in pieces. Throws as
/// visit_documents: errc::storage for a missing file, errc::data for malformed or empty text.
[[nodiscard]] inline std::vector<std::string> read_text(std::span<std::string const> specs) {
    std::vector<std::string> documents;
    bool inside = false;
    visit_documents(specs, {}, [&](std::string_view part, bool ends) {
        if (!std::exchange(inside, !ends)) documents.emplace_back();
        documents.back() += part;
        return ends ? documents.back().size() / 4 + 1 : std::size_t{0};
    });
    return documents;
}

/// As above, for SPECs given one by one: read_text("one.txt", "more.jsonl").
template <std::convertible_to<std::string>... Specs>
requires(sizeof...(Specs) > 0) [[nodiscard]] std::vector<std::string> read_text(Specs const&... specs) {
    std::vector<std::string> const all{std::string(specs)...};
    return read_text(std::span<std::string const>(all));
}

}  // namespace calm
