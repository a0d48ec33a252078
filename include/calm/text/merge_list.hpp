#pragma once
// The merges of a byte-pair encoding whose order is not that of its ids.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/text/keyed_hash.hpp"

namespace calm {

// Pairs of neighbours and the token that each becomes, in the order in which they merge: the rank of a pair is its
// number.
class merge_list {
public:
    // How many there are.
    [[nodiscard]] std::size_t size() const { return merged_.size(); }

    // The rank of a pair of tokens, or -1.
    [[nodiscard]] std::int32_t rank(token_id left, token_id right) const {
        auto const found = ranks_.find(key_of(left, right));
        return found == ranks_.end() ? -1 : found->second;
    }
    // What the pair of a rank becomes, 0 <= rank < size().
    [[nodiscard]] token_id merged(std::int32_t rank) const { return merged_[static_cast<std::size_t>(rank)]; }

    // The left token of a rank, 0 <= rank < size().
    [[nodiscard]] token_id left(std::int32_t rank) const {
        return static_cast<token_id>(pairs_[static_cast<std::size_t>(rank)] >> 32);
    }
    // The right token of a rank, 0 <= rank < size().
    [[nodiscard]] token_id right(std::int32_t rank) const {
        return static_cast<token_id>(pairs_[static_cast<std::size_t>(rank)] & 0xffffffffu);
    }

    // Adds a pair of the next rank; false, and nothing changes, if it is there already.
    bool add(token_id left, token_id right, token_id merged) {
        if (!ranks_.emplace(key_of(left, right), static_cast<std::int32_t>(size())).second) return false;
        pairs_.push_back(key_of(left, right));
        merged_.push_back(merged);
        return true;
    }

private:
    static std::uint64_t key_of(token_id left, token_id right) {
        return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
    }

    std::unordered_map<std::uint64_t, std::int32_t, keyed_hash> ranks_;
    std::vector<std::uint64_t> pairs_;  // by rank
    std::vector<token_id> merged_;      // by rank
};

}  // namespace calm
