#pragma once
// Merges of a byte-pair encoding whose order differs from the order of ids.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/text/detail/keyed_hash.hpp"

namespace calm::detail {

// Adjacent pairs and the token that each merges into, in merge order: the rank of a pair is its index.
class merge_list {
public:
    // The number of merges.
    [[nodiscard]] std::size_t size() const { return merged_.size(); }

    // The rank of a pair of tokens, or -1.
    [[nodiscard]] std::int32_t rank(token_id left, token_id right) const {
        auto const found = ranks_.find(key_of(left, right));
        return found == ranks_.end() ? -1 : found->second;
    }
    // The token that the pair of a rank merges into, 0 <= rank < size().
    [[nodiscard]] token_id merged(std::int32_t rank) const { return merged_[static_cast<std::size_t>(rank)]; }

    // The left token of a rank, 0 <= rank < size().
    [[nodiscard]] token_id left(std::int32_t rank) const {
        return static_cast<token_id>(pairs_[static_cast<std::size_t>(rank)] >> 32);
    }
    // The right token of a rank, 0 <= rank < size().
    [[nodiscard]] token_id right(std::int32_t rank) const {
        return static_cast<token_id>(pairs_[static_cast<std::size_t>(rank)] & 0xffffffffu);
    }

    // Adds a pair with the next rank. Returns false and changes nothing if the pair already exists.
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

}  // namespace calm::detail
