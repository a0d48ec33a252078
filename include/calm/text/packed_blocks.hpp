#pragma once
/// \file
/// Packs documents that come in portions and cuts them into blocks as they come.
/// \shows{tests/apps/text_data_test.cpp,pairs_of_all_training_tokens_are_counted}

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "calm/text/bigram.hpp"
#include "calm/text/detail/block_source.hpp"
#include "calm/text/detail/document_ids.hpp"
#include "calm/text/packing.hpp"

namespace calm {

/// Packs documents for epoch 0, in order of arrival, and passes tokens on immediately.
template <std::invocable<std::span<token_id const>> Sink> class packer {
public:
    /// The sink receives tokens, possibly none, that are valid only during the call.
    packer(packing_rule const& rule, special_tokens const& specials, Sink sink) :
        rule_(rule), specials_(specials), sink_(std::move(sink)) {}

    /// The portions of a document must come in order, without other documents between them.
    void add(document_portion const& portion) {
        if (portion.is_first()) {
            around_.clear();
            rule_.open(specials_, 0, documents_, around_);
            sink_(std::span<token_id const>(around_));
        }
        sink_(portion.ids);
        if (!portion.is_last) return;
        around_.clear();
        rule_.close(specials_, 0, documents_, portion.end(), around_);
        sink_(std::span<token_id const>(around_));
        ++documents_;
        least_ += rule_.packed_size(portion.end(), 0);
    }

    /// A lower bound of the number of tokens, whatever the offsets.
    [[nodiscard]] std::size_t least_tokens() const { return least_; }

private:
    packing_rule rule_;
    special_tokens specials_;
    Sink sink_;
    std::uint64_t documents_ = 0;
    std::size_t least_ = 0;
    std::vector<token_id> around_;
};

/// Visits the documents of a corpus, each as one portion.
inline void visit_portions(corpus const& documents, portion_visitor const& visitor) {
    for (std::size_t i = 0; i < documents.documents(); ++i) visitor({0, documents.document(i), true});
}

/// Counts all neighbouring tokens of a corpus, packed by a rule for epoch 0. Throws as bigram_counts and bigram_table.
[[nodiscard]] inline bigram_table bigrams_of(corpus const& text, token_id vocabulary, packing_rule const& rule) {
    bigram_counts counts(vocabulary);
    packer packed(rule, text.specials(), [&](std::span<token_id const> tokens) { counts.add(tokens); });
    visit_portions(text, [&](document_portion const& portion) { packed.add(portion); });
    return bigram_table(std::move(counts));
}

/// The amount of text.
struct text_size {
    std::size_t documents = 0;  ///< each piece of an over-long document counts
    std::size_t tokens = 0;     ///< of the documents, before packing
};

/// Measures documents. Throws as evaluation_blocks unless they fill a block in every epoch, whatever the offsets.
[[nodiscard]] inline text_size size_of(document_ids& documents, packing_rule const& rule, std::size_t block_tokens) {
    detail::require_rule(documents.specials(), rule, block_tokens);
    text_size size;
    std::size_t least = 0;
    documents.visit([&](document_portion const& portion) {
        size.tokens += portion.ids.size();
        if (!portion.is_last) return;
        ++size.documents;
        least += rule.packed_size(portion.end(), 0);
    });
    detail::require_one_block(least, block_tokens);
    return size;
}

/// Throws as size_of unless the documents fill a block in every epoch. Reads only as many documents as needed.
inline void require_block(document_ids& documents, packing_rule const& rule, std::size_t block_tokens) {
    struct enough {};
    detail::require_rule(documents.specials(), rule, block_tokens);
    std::size_t least = 0;
    try {
        documents.visit([&](document_portion const& portion) {
            if (portion.is_last) least += rule.packed_size(portion.end(), 0);
            if (least >= block_tokens) throw enough();
        });
    } catch (enough const&) {
        return;
    }
    detail::require_one_block(least, block_tokens);
}

/// The blocks that evaluation_blocks makes of the same documents, with one at a time in memory. A call of the source
/// throws as evaluation_blocks.
[[nodiscard]] inline block_source blocks_of(std::shared_ptr<document_ids> documents, packing_rule const& rule,
                                            std::size_t block_tokens) {
    return [documents = std::move(documents), rule, block_tokens](block_visitor const& visitor) {
        detail::require_rule(documents->specials(), rule, block_tokens);
        std::vector<token_id> block;
        block.reserve(block_tokens);
        packer packed(rule, documents->specials(), [&](std::span<token_id const> tokens) {
            while (!tokens.empty()) {
                auto const some = tokens.first(std::min(tokens.size(), block_tokens - block.size()));
                block.insert(block.end(), some.begin(), some.end());
                tokens = tokens.subspan(some.size());
                if (block.size() < block_tokens) continue;
                visitor(block);
                block.clear();
            }
        });
        documents->visit([&](document_portion const& portion) { packed.add(portion); });
        detail::require_one_block(packed.least_tokens(), block_tokens);
    };
}

}  // namespace calm
