#pragma once
/// \file
/// Tokenised documents, in memory or in a token file.
/// \shows{tests/text/corpus_test.cpp,documents_are_stored_one_after_another}

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/text/detail/token_file.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

/// Documents as consecutive ids without special tokens, and the special tokens to pack them with.
class corpus {
public:
    /// An empty corpus, in memory.
    explicit corpus(special_tokens specials) : specials_(specials) {}
    /// The documents of a token file. Their ids stay on disk, and none can be added.
    corpus(special_tokens specials, std::shared_ptr<token_file const> file) :
        specials_(specials), file_(std::move(file)) {}

    /// Appends a document: `append` receives the vector of all ids and appends the document's ids to it. Returns the
    /// number of ids appended.
    template <std::invocable<std::vector<token_id>&> Append> std::size_t add(Append&& append) {
        std::forward<Append>(append)(open());
        return close();
    }
    /// Adds a document incrementally: append its ids to open(), then call close().
    [[nodiscard]] std::vector<token_id>& open() { return ids_; }
    /// Ends the document; returns the number of its ids.
    std::size_t close() {
        std::size_t const before = ends_.empty() ? 0 : ends_.back();
        ends_.push_back(ids_.size());
        return ids_.size() - before;
    }
    /// Appends a document with these ids; returns their number.
    std::size_t add(std::span<token_id const> ids) {
        return add([&](std::vector<token_id>& all) { all.insert(all.end(), ids.begin(), ids.end()); });
    }

    /// The number of documents.
    [[nodiscard]] std::size_t documents() const { return file_ ? file_->documents() : ends_.size(); }
    /// The total number of ids.
    [[nodiscard]] std::size_t tokens() const { return file_ ? file_->facts().tokens : ids_.size(); }
    /// The ids of document i, 0 <= i < documents().
    [[nodiscard]] std::span<token_id const> document(std::size_t i) const {
        return file_ ? file_->ids(i) : std::span(ids_).subspan(begin(i), size(i));
    }
    /// The number of ids of document i, without reading them.
    [[nodiscard]] std::size_t size(std::size_t i) const { return file_ ? file_->size(i) : ends_[i] - begin(i); }
    /// The number of malformed documents that were skipped when the token file was written; 0 in memory.
    [[nodiscard]] std::uint64_t skipped() const { return file_ ? file_->facts().skipped : 0; }
    /// The special tokens for packing; all -1 if there are none.
    [[nodiscard]] special_tokens const& specials() const { return specials_; }

private:
    [[nodiscard]] std::size_t begin(std::size_t i) const { return i == 0 ? 0 : ends_[i - 1]; }

    special_tokens specials_;
    std::vector<token_id> ids_;
    std::vector<std::size_t> ends_;  // end of each document in ids_
    std::shared_ptr<token_file const> file_;
};

}  // namespace calm
