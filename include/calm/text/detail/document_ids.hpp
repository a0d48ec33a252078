#pragma once
// Streams the ids of documents, any number of times, without ever holding all of them in memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/text/build_corpus.hpp"
#include "calm/text/documents.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm {

// Consecutive ids of a document, from index `first` on. Only the last portion of a document may be empty.
struct document_portion {
    std::size_t first = 0;          // index of the first of these ids in the document
    std::span<token_id const> ids;  // valid during the visitor's call
    bool is_last = true;            // whether the document ends with it

    [[nodiscard]] bool is_first() const { return first == 0; }            // whether the document begins with it
    [[nodiscard]] std::size_t end() const { return first + ids.size(); }  // of the last portion: the document's size
};
// Receives the portions of a document in order, then the portions of the next.
using portion_visitor = std::function<void(document_portion const&)>;

// The documents that build_corpus makes of the same arguments, in the same order, tokenised at each visit.
class document_ids {
public:
    // The tokenizer must outlive this object. Throws as build_corpus.
    document_ids(std::span<std::string const> specs, tokenizer const& tokenizer, document_selection const& selection) :
        tokenizer_(&tokenizer), selection_(selection), sources_(document_sources(specs)) {
        detail::require_vocabulary(specs, tokenizer);
    }

    // The special tokens of the tokenizer, for packing; the documents contain none.
    [[nodiscard]] special_tokens specials() const { return tokenizer_->specials(); }

    // Visits the portions of all documents in order. Malformed documents are counted at the first visit only. Throws
    // errc::data if no document is selected, otherwise as visit_documents.
    void visit(portion_visitor const& visitor) {
        constexpr std::size_t slice = std::size_t{1} << 20;  // bytes tokenised at a time
        skipped_documents again;
        auto selection = selection_;
        if (selection.skip != nullptr && std::exchange(visited_, true)) selection.skip = &again;
        token_stream stream(*tokenizer_);
        std::vector<token_id> ids;
        std::size_t first = 0;
        bool any = false;
        auto const pass = [&](bool is_last) {
            if (ids.empty() && !is_last) return;
            visitor({first, ids, is_last});
            first += ids.size();
            ids.clear();
        };
        document_parts const add = [&](std::string_view part, bool ends) {
            for (; !part.empty(); part.remove_prefix(std::min(part.size(), slice))) {
                stream.push(part.substr(0, slice), ids);
                pass(false);
            }
            if (!ends) return std::size_t{0};
            stream.finish(ids);
            pass(true);
            any = true;
            return std::exchange(first, 0);
        };
        std::uint64_t number = 0;
        for (auto const& source : sources_) source.visit(selection, number, add);
        require_documents(any, number, selection_);
    }

private:
    tokenizer const* tokenizer_;
    document_selection selection_;
    std::vector<document_source> sources_;
    bool visited_ = false;
};

}  // namespace calm
