#pragma once
// Byte-pair merging of one piece (Sennrich, Haddow and Birch 2016): merges the adjacent pair of lowest rank, leftmost
// first, until no pair has a rank.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string_view>
#include <vector>

#include "calm/text/detail/merge_list.hpp"
#include "calm/text/detail/piece_limit.hpp"
#include "calm/text/detail/token_table.hpp"

namespace calm::detail {

// Which adjacent pairs merge, and in which order: the pairs of a merge list in list order, or, without a list, every
// pair whose concatenation is a token, in order of ids.
struct merge_rules {
    token_table const& table;          // must outlive the rules
    merge_list const* list = nullptr;  // null: merging is by id
    // The rank of a pair whose concatenated bytes are `joined`, or -1.
    [[nodiscard]] std::int32_t rank(token_id left, token_id right, std::string_view joined) const {
        return list == nullptr ? table.find(joined) : list->rank(left, right);
    }
    // The token that the pair of this rank merges into.
    [[nodiscard]] token_id merged(std::int32_t rank) const { return list == nullptr ? rank : list->merged(rank); }
    // All ranks are below this.
    [[nodiscard]] std::size_t ranks() const {
        return list == nullptr ? static_cast<std::size_t>(table.size()) : list->size();
    }
};

// Merges pieces one after another, reusing its buffers. Every byte of a piece must be a token of the table; bytes that
// the table lacks are the caller's to refuse.
template <class Rules> class bpe_merger {
public:
    // The table and everything that the rules refer to must outlive it.
    bpe_merger(token_table const& table, Rules rules) : table_(table), rules_(rules) {}

    // Appends the tokens of a non-empty piece.
    void merge(std::string_view piece, std::vector<token_id>& out) {
        if (piece.size() <= few) {
            merge_few(piece, out);
        } else {
            merge_many(piece, out);
        }
    }

    // Scans for the lowest rank after every merge: quadratic, but for at most 64 bytes, all in cache.
    void merge_few(std::string_view piece, std::vector<token_id>& out) const {
        struct run {
            std::uint32_t begin;
            token_id id;
            std::int32_t pair;  // rank of this part joined with the next, or none
        };
        run parts[few + 1];  // one per byte, and the end
        std::size_t count = piece.size();
        for (std::size_t i = 0; i < count; ++i)
            parts[i] = {static_cast<std::uint32_t>(i), table_.find(piece.substr(i, 1)), none};
        parts[count] = {static_cast<std::uint32_t>(count), none, none};
        auto const rank = [&](std::size_t i) {
            if (i + 2 > count) return none;
            return rules_.rank(parts[i].id, parts[i + 1].id,
                               piece.substr(parts[i].begin, parts[i + 2].begin - parts[i].begin));
        };
        for (std::size_t i = 0; i + 1 < count; ++i) parts[i].pair = rank(i);
        while (true) {
            std::size_t best = count;
            for (std::size_t i = 0; i + 1 < count; ++i)
                if (parts[i].pair >= 0 && (best == count || parts[i].pair < parts[best].pair)) best = i;
            if (best == count) break;
            parts[best].id = rules_.merged(parts[best].pair);
            std::copy(parts + best + 2, parts + count + 1, parts + best + 1);
            --count;
            parts[best].pair = rank(best);
            if (best > 0) parts[best - 1].pair = rank(best - 1);
        }
        for (std::size_t i = 0; i < count; ++i) out.push_back(parts[i].id);
    }

    // Processes ranks in ascending order, and the positions of each rank from left to right. A position enters the list
    // of a rank once and is stale if its pair has another rank by then: pairs only grow, so a rank never recurs at a
    // position. Takes linear time apart from sorting. Throws as require_piece.
    void merge_many(std::string_view piece, std::vector<token_id>& out) {
        require_piece(piece.size());
        auto const size = static_cast<std::uint32_t>(piece.size());
        parts_.clear();
        parts_.reserve(piece.size() + 1);
        first_.resize(rules_.ranks(), nowhere);
        waiting_.clear();
        for (std::uint32_t i = 0; i < size; ++i)
            parts_.push_back({i + 1, i == 0 ? nowhere : i - 1, table_.find(piece.substr(i, 1)), none});
        parts_.push_back({nowhere, size - 1, none, none});
        std::int32_t current = none;
        for (std::uint32_t i = 0; i < size; ++i) offer(piece, i, current);
        while (!ranks_.empty()) {
            current = ranks_.top();
            ranks_.pop();
            take_positions(current);
            std::size_t at = 0;
            while (at < positions_.size() || !urgent_.empty()) {
                std::uint64_t next = at < positions_.size() ? key_of(current, positions_[at]) : key_of(-1, nowhere);
                if (!urgent_.empty() && urgent_.top() < next) {
                    next = urgent_.top();
                    urgent_.pop();
                } else {
                    ++at;
                }
                auto const rank = static_cast<std::int32_t>(next >> 32);
                auto const begin = static_cast<std::uint32_t>(next);
                part& left = parts_[begin];
                if (left.pair != rank) continue;
                part& right = parts_[left.next];
                right.pair = none;
                left.next = right.next;
                parts_[left.next].previous = begin;
                left.id = rules_.merged(rank);
                offer(piece, begin, current);
                if (left.previous != nowhere) offer(piece, left.previous, current);
            }
        }
        for (std::uint32_t i = 0; i < size; i = parts_[i].next) out.push_back(parts_[i].id);
    }

private:
    static constexpr std::size_t few = 64;
    static constexpr std::int32_t none = -1;
    static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

    // A token that begins at the byte of its index.
    struct part {
        std::uint32_t next;
        std::uint32_t previous;
        token_id id;
        std::int32_t pair;  // rank of this part joined with the next, or none
    };
    struct place {
        std::uint32_t begin;
        std::uint32_t next;  // in the list of the same rank
    };

    static std::uint64_t key_of(std::int32_t rank, std::uint32_t begin) {
        return std::uint64_t{static_cast<std::uint32_t>(rank)} << 32 | begin;
    }

    // Finds the rank of a part joined with the next and queues it. A rank that is not above the current one is urgent;
    // vocabularies made by merging have none.
    void offer(std::string_view piece, std::uint32_t begin, std::int32_t current) {
        part& left = parts_[begin];
        left.pair = none;
        if (left.next >= piece.size()) return;
        part const& right = parts_[left.next];
        std::int32_t const rank = left.pair = rules_.rank(left.id, right.id, piece.substr(begin, right.next - begin));
        if (rank == none) return;
        if (rank <= current) {
            urgent_.push(key_of(rank, begin));
            return;
        }
        std::uint32_t& first = first_[static_cast<std::size_t>(rank)];
        if (first == nowhere) ranks_.push(rank);
        waiting_.push_back({begin, first});
        first = static_cast<std::uint32_t>(waiting_.size() - 1);
    }

    // Moves the list of a rank to positions_, sorted.
    void take_positions(std::int32_t rank) {
        positions_.clear();
        std::uint32_t& first = first_[static_cast<std::size_t>(rank)];
        for (std::uint32_t i = first; i != nowhere; i = waiting_[i].next) positions_.push_back(waiting_[i].begin);
        first = nowhere;
        std::reverse(positions_.begin(), positions_.end());
        if (!std::is_sorted(positions_.begin(), positions_.end())) std::sort(positions_.begin(), positions_.end());
    }

    token_table const& table_;
    Rules rules_;
    std::vector<part> parts_;
    std::vector<place> waiting_;
    std::vector<std::uint32_t> first_;  // list heads in waiting_, by rank
    std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ranks_;  // with waiting positions
    std::vector<std::uint32_t> positions_;                                                // of the current rank
    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> urgent_;
};

}  // namespace calm::detail
