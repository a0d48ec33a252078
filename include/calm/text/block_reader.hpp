#pragma once
/// \file
/// Training blocks, epoch after epoch.
/// \shows{tests/text/block_reader_test.cpp,a_saved_position_restores_the_following_blocks}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "calm/text/packing.hpp"

namespace calm {

/// The position of the next block: the complete state for resuming.
struct block_position {
    std::uint64_t epoch = 0;  ///< from 0
    std::uint64_t index = 0;  ///< of the block within the epoch
    friend bool operator==(block_position const&, block_position const&) = default;
};

/// Packs the documents of a corpus, reshuffled every epoch, and cuts them into blocks of whole patches. A document that
/// does not fit continues in the next block. The last incomplete block of an epoch is dropped.
class block_reader {
public:
    /// The corpus must outlive the reader. Throws errc::data if it has less than one block, errc::config if
    /// block_tokens is not a multiple of K.
    block_reader(corpus const& documents, packing_rule const& rule, std::size_t block_tokens) :
        documents_(&documents), rule_(rule), block_tokens_(block_tokens) {
        detail::require_block(documents, rule, block_tokens);
        seek({});
    }

    /// The order of n documents in an epoch: Fisher-Yates with stream::document_order. Throws errc::data for 2^32 or
    /// more.
    [[nodiscard]] static std::vector<std::size_t> order_of(std::size_t n, std::uint64_t seed, std::uint64_t epoch) {
        require(n <= std::numeric_limits<std::uint32_t>::max(), errc::data, "a corpus has at most ",
                std::numeric_limits<std::uint32_t>::max(), " documents, found ", n, ": join some of them");
        std::vector<std::size_t> order(n);
        std::iota(order.begin(), order.end(), std::size_t{0});
        random_sequence random({seed, stream::document_order, static_cast<std::uint32_t>(epoch)});
        for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
        return order;
    }

    /// Tokens per block.
    [[nodiscard]] std::size_t block_tokens() const { return block_tokens_; }
    /// The position of the next block.
    [[nodiscard]] block_position position() const { return position_; }

    /// The number of blocks in an epoch.
    [[nodiscard]] std::uint64_t blocks_in(std::uint64_t epoch) const {
        std::size_t tokens = 0;
        for (std::size_t i = 0; i < documents_->documents(); ++i)
            tokens += rule_.packed_size(documents_->size(i), rule_.offset(epoch, i));
        return tokens / block_tokens_;
    }

    /// Fills `block`, of block_tokens() ids, and advances. Throws errc::usage for another size.
    void next(std::span<token_id> block) {
        require(block.size() == block_tokens_, errc::usage, "a block has ", block_tokens_,
                " tokens, but the buffer has ", block.size(), ": give a buffer of block_tokens() tokens");
        if (position_.index == blocks_) seek({position_.epoch + 1, 0});
        for (std::size_t filled = 0; filled < block.size();) {
            if (used_ == packed_.size()) take_document();
            std::size_t const count = std::min(block.size() - filled, packed_.size() - used_);
            std::copy_n(packed_.begin() + static_cast<std::ptrdiff_t>(used_), count,
                        block.begin() + static_cast<std::ptrdiff_t>(filled));
            used_ += count;
            filled += count;
        }
        ++position_.index;
    }

    /// Moves to a position from position() of a reader with equal corpus and rule. Throws errc::data if the epoch has
    /// no such block.
    void seek(block_position position) {
        blocks_ = blocks_in(position.epoch);
        require(position.index <= blocks_, errc::data, "epoch ", position.epoch, " has ", blocks_,
                " blocks, but block ", position.index, " is requested: the position belongs to another text");
        position_ = position;
        order_ = order_of(documents_->documents(), rule_.seed, position.epoch);
        next_document_ = 0;
        packed_.clear();
        used_ = 0;
        for (std::size_t skip = position.index * block_tokens_; skip > 0;) {
            std::size_t const i = order_[next_document_];
            std::size_t const size = rule_.packed_size(documents_->size(i), rule_.offset(position.epoch, i));
            if (size > skip) {
                take_document();
                used_ = skip;
                return;
            }
            ++next_document_;
            skip -= size;
        }
    }

private:
    void take_document() {
        packed_.clear();
        used_ = 0;
        rule_.append(*documents_, position_.epoch, order_[next_document_++], packed_);
    }

    corpus const* documents_;
    packing_rule rule_;
    std::size_t block_tokens_;
    block_position position_;
    std::uint64_t blocks_ = 0;  // in this epoch
    std::vector<std::size_t> order_;
    std::size_t next_document_ = 0;  // in order_
    std::vector<token_id> packed_;   // the document being read
    std::size_t used_ = 0;           // ids of packed_ already used
};

}  // namespace calm
