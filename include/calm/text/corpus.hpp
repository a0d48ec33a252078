#pragma once
// Tokenised documents, in memory or in token files.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/token.hpp"
#include "calm/text/special_tokens.hpp"
#include "calm/text/token_file.hpp"

namespace calm {

// Documents as consecutive ids without special tokens, and the special tokens to pack them with. Ids of token files
// stay on disk.
class corpus {
public:
    // An empty corpus.
    explicit corpus(special_tokens specials) : specials_(specials) {}

    // Appends a document: `append` receives the vector of all ids and appends the document's ids to it. Returns the
    // number of ids appended.
    template <std::invocable<std::vector<token_id>&> Append> std::size_t add(Append&& append) {
        std::forward<Append>(append)(open());
        return close();
    }
    // Adds a document incrementally: append its ids to open(), then call close().
    [[nodiscard]] std::vector<token_id>& open() { return ids_; }
    // Ends the document; returns the number of its ids.
    std::size_t close() {
        std::size_t const before = ends_.empty() ? 0 : ends_.back();
        if (parts_.empty() || parts_.back().file) parts_.push_back({documents(), ends_.size(), nullptr, {}});
        ends_.push_back(ids_.size());
        return ids_.size() - before;
    }
    // Appends a document with these ids; returns their number.
    std::size_t add(std::span<token_id const> ids) {
        return add([&](std::vector<token_id>& all) { all.insert(all.end(), ids.begin(), ids.end()); });
    }

    // Appends the entries i of a file for which takes(i) holds. Throws errc::data if the file has 2^32 entries or more.
    template <class Takes>
    requires std::is_invocable_r_v<bool, Takes, std::size_t>
    void add(std::shared_ptr<token_file const> file, Takes&& takes) {
        require(file->entries() <= std::numeric_limits<std::uint32_t>::max(), errc::data,
                "a file of text has more than 4,294,967,295 documents: cut it into several");
        part added{documents(), 0, std::move(file), {}};
        std::size_t const all = added.file->entries();
        for (std::size_t i = 0; i < all; ++i)
            if (takes(i)) {
                added.entries.push_back(static_cast<std::uint32_t>(i));
                mapped_tokens_ += added.file->size(i);
            }
        if (added.entries.empty()) return;
        mapped_ += added.entries.size();
        if (added.entries.size() == all) added.entries = {};
        parts_.push_back(std::move(added));
    }

    // The number of ids in memory.
    [[nodiscard]] std::size_t held() const { return ids_.size(); }
    // Moves the documents in memory, all of which must be closed, to a file. `keep` receives the ids of each document
    // as a vector of spans and returns a file with one entry per document, in order. If it throws, nothing changes.
    template <class Keep> void spill_to_disk(Keep const& keep) {
        std::vector<std::span<token_id const>> held;
        held.reserve(ends_.size());
        for (std::size_t begin = 0; std::size_t const end : ends_) {
            held.push_back(std::span(ids_).subspan(begin, end - begin));
            begin = end;
        }
        std::shared_ptr<token_file const> const file = keep(std::as_const(held));
        for (auto& one : parts_)
            if (!one.file) one.file = file;
        mapped_ += ends_.size();
        mapped_tokens_ += ids_.size();
        ids_.clear();
        ends_.clear();
    }

    // The number of documents.
    [[nodiscard]] std::size_t documents() const { return ends_.size() + mapped_; }
    // The total number of ids.
    [[nodiscard]] std::size_t tokens() const { return ids_.size() + mapped_tokens_; }
    // The ids of document i, 0 <= i < documents().
    [[nodiscard]] std::span<token_id const> document(std::size_t i) const {
        part const& in = part_of(i);
        if (in.file) return in.file->ids(in.entry(i));
        auto const [begin, end] = bounds(in, i);
        return std::span(ids_).subspan(begin, end - begin);
    }
    // The number of ids of document i, without reading them.
    [[nodiscard]] std::size_t size(std::size_t i) const {
        part const& in = part_of(i);
        if (in.file) return in.file->size(in.entry(i));
        auto const [begin, end] = bounds(in, i);
        return end - begin;
    }
    // The special tokens for packing; all -1 if there are none.
    [[nodiscard]] special_tokens const& specials() const { return specials_; }

private:
    // Consecutive documents, in memory or of one file.
    struct part {
        std::size_t first;        // index of its first document
        std::size_t first_entry;  // entry of that document: in the file, or in ends_
        std::shared_ptr<token_file const> file;
        std::vector<std::uint32_t> entries;  // of the file; empty: consecutive from first_entry

        // The entry of document i of the corpus.
        [[nodiscard]] std::size_t entry(std::size_t i) const {
            return entries.empty() ? first_entry + (i - first) : entries[i - first];
        }
    };

    [[nodiscard]] part const& part_of(std::size_t i) const {
        auto const after = parts_.size() == 1
                               ? parts_.end()
                               : std::upper_bound(parts_.begin(), parts_.end(), i,
                                                  [](std::size_t n, part const& p) { return n < p.first; });
        return *std::prev(after);
    }
    // Begin and end in ids_ of document i, of a part in memory.
    [[nodiscard]] std::pair<std::size_t, std::size_t> bounds(part const& in, std::size_t i) const {
        std::size_t const own = in.entry(i);
        return {own == 0 ? 0 : ends_[own - 1], ends_[own]};
    }

    special_tokens specials_;
    std::vector<token_id> ids_;
    std::vector<std::size_t> ends_;  // end of each document in memory, in ids_
    std::vector<part> parts_;
    std::size_t mapped_ = 0;         // documents in files
    std::size_t mapped_tokens_ = 0;  // ids of these documents
};

}  // namespace calm
