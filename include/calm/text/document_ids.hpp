#pragma once
// Streams the ids of documents, any number of times, without ever holding all of them in memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/text/build_corpus.hpp"
#include "calm/text/token_cache.hpp"

namespace calm {

// Consecutive ids of a document: from index `first` on, of `size` in total. An empty document is one empty portion.
struct document_portion {
    // Maximum ids per portion when document_ids cuts a document: one from a token file or the Markov source.
    static constexpr std::size_t most = std::size_t{1} << 20;

    std::size_t size = 0;           // ids of the whole document
    std::size_t first = 0;          // index of the first of these ids in the document
    std::span<token_id const> ids;  // valid during the visitor's call

    [[nodiscard]] bool is_first() const { return first == 0; }                 // whether the document begins with it
    [[nodiscard]] bool is_last() const { return first + ids.size() == size; }  // whether the document ends with it
};
// Receives the portions of a document in order, then the portions of the next.
using portion_visitor = std::function<void(document_portion const&)>;

// The documents that build_corpus makes of the same arguments, in the same order. Cached files are mapped; the others
// are tokenised at each visit.
class document_ids {
public:
    // Without a cache, all files are tokenised at each visit. The tokenizer must outlive this object. Throws as
    // build_corpus.
    document_ids(std::span<std::string const> specs, tokenizer const& words, document_selection const& selection,
                 token_cache* cache = nullptr) :
        words_(&words),
        selection_(selection), is_markov_(calm::is_markov(specs)) {
        detail::require_vocabulary(specs, words);
        for (auto& source : document_sources(specs)) {
            auto const add = [&](std::string file) {
                auto kept = cache != nullptr ? cache->tokens_of(file, words, selection) : nullptr;
                parts_.push_back({nullptr, std::move(file), std::move(kept)});
            };
            for (auto const& file : source.files()) add(file);
            if (source.is_generated())
                parts_.push_back({std::make_shared<document_source const>(std::move(source)), {}, nullptr});
        }
    }

    // The special tokens of the tokenizer, for packing; the documents contain none.
    [[nodiscard]] special_tokens specials() const { return words_->specials(); }

    // Visits the portions of all documents in order. Malformed documents are counted at the first visit only. Throws
    // errc::data if no document is selected, otherwise as visit_documents.
    void visit(portion_visitor const& visitor) {
        std::uint64_t number = 0;
        bool any = false;
        auto const each = [&](document_portion const& portion) {
            any = true;
            visitor(portion);
        };
        for (auto const& one : parts_) one.kept ? visit_kept(*one.kept, number, each) : visit_text(one, number, each);
        visited_ = true;
        require_documents(any, number, selection_);
    }

private:
    struct part {
        std::shared_ptr<document_source const> generated;  // null: a file
        std::string file;
        std::shared_ptr<token_file const> kept;
    };

    template <class F> void visit_kept(token_file const& kept, std::uint64_t& number, F const& f) const {
        for (std::size_t i = 0; i < kept.entries(); ++i) {
            if (!detail::takes_entry(kept, i, selection_, number)) continue;
            std::size_t const size = kept.size(i);
            std::size_t first = 0;
            do {
                f({size, first, kept.ids(i, first, document_portion::most)});
                first += document_portion::most;
            } while (first < size);
        }
    }

    template <class F> void visit_text(part const& one, std::uint64_t& number, F const& f) const {
        skipped_documents again;
        auto selection = selection_;
        if (selection.skip != nullptr && visited_) selection.skip = &again;
        std::vector<token_id> ids;
        auto const encode = [&](std::string_view text) -> std::span<token_id const> {
            ids.clear();
            words_->encode(text, ids);
            return ids;
        };
        document_visitor const add = [&](std::string_view document) {
            if (!is_markov_) {
                auto const all = encode(document);
                f({all.size(), 0, all});
                return all.size();
            }
            // one token per symbol
            for (std::size_t first = 0; first < document.size(); first += document_portion::most)
                f({document.size(), first, encode(document.substr(first, document_portion::most))});
            return document.size();
        };
        if (one.generated)
            one.generated->visit(selection, number, add);
        else
            document_source::visit_file(one.file, selection, number, add);
    }

    tokenizer const* words_;
    document_selection selection_;
    bool is_markov_;
    bool visited_ = false;
    std::vector<part> parts_;
};

}  // namespace calm
