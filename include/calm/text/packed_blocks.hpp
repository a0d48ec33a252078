#pragma once
// Documents that come in portions, packed and cut into blocks as they come.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "calm/text/block_source.hpp"
#include "calm/text/document_ids.hpp"
#include "calm/text/packing.hpp"

namespace calm {

// Packs documents for epoch 0, in the order in which they come, and gives the tokens on as it has them.
template <std::invocable<std::span<token_id const>> Sink> class packer {
public:
    // The sink is called with tokens that live until it returns, of which there may be none.
    packer(packing_rule const& rule, special_tokens const& specials, Sink sink) :
        rule_(rule), specials_(specials), sink_(std::move(sink)) {}

    // The portions of a document come in their order, with no other's between.
    void add(document_portion const& portion) {
        if (portion.is_first()) {
            around_.clear();
            rule_.open(specials_, 0, documents_, around_);
            sink_(std::span<token_id const>(around_));
        }
        sink_(portion.ids);
        if (!portion.is_last()) return;
        around_.clear();
        rule_.close(specials_, 0, documents_, portion.size, around_);
        sink_(std::span<token_id const>(around_));
        ++documents_;
        least_ += rule_.packed_size(portion.size, 0);
    }

    // How many tokens there are at least, whatever the offsets.
    [[nodiscard]] std::size_t least_tokens() const { return least_; }

private:
    packing_rule rule_;
    special_tokens specials_;
    Sink sink_;
    std::uint64_t documents_ = 0;
    std::size_t least_ = 0;
    std::vector<token_id> around_;
};

// The documents of a corpus as portions.
inline void visit_portions(corpus const& documents, portion_visitor const& visitor) {
    for (std::size_t i = 0; i < documents.documents(); ++i) {
        auto const ids = documents.document(i);
        visitor({ids.size(), 0, ids});
    }
}

// How much text there is.
struct text_size {
    std::size_t documents = 0;  // each piece of an over-long one is one
    std::size_t tokens = 0;     // of the documents, before packing
};

// Of documents that fill a block in every epoch, whatever the offsets. Throws as evaluation_blocks where they do not.
[[nodiscard]] inline text_size size_of(document_ids& documents, packing_rule const& rule, std::size_t block_tokens) {
    detail::require_rule(documents.specials(), rule, block_tokens);
    text_size size;
    std::size_t least = 0;
    documents.visit([&](document_portion const& portion) {
        size.tokens += portion.ids.size();
        if (!portion.is_last()) return;
        ++size.documents;
        least += rule.packed_size(portion.size, 0);
    });
    detail::require_one_block(least, block_tokens);
    return size;
}

// Throws as size_of where documents do not fill a block in every epoch; of those that do only the first are read.
inline void require_block(document_ids& documents, packing_rule const& rule, std::size_t block_tokens) {
    struct enough {};
    detail::require_rule(documents.specials(), rule, block_tokens);
    std::size_t least = 0;
    try {
        documents.visit([&](document_portion const& portion) {
            if (portion.is_last()) least += rule.packed_size(portion.size, 0);
            if (least >= block_tokens) throw enough();
        });
    } catch (enough const&) {
        return;
    }
    detail::require_one_block(least, block_tokens);
}

// The blocks that evaluation_blocks makes of the same documents, of which one at a time is in memory. Throws as it,
// when it is called.
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
