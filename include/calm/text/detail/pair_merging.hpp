#pragma once
// Repeatedly merges the most frequent adjacent pair everywhere.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "calm/text/detail/keyed_hash.hpp"
#include "calm/text/detail/piece_counts.hpp"
#include "calm/text/detail/token_table.hpp"

namespace calm::detail {

// Pieces in their current state of merging. A merge takes a few look-ups per occurrence, whatever the length of the
// piece. A token of n bytes has n cells, its id in the first and -n in the last, so both neighbours are found from its
// ends. Where the right token of a merge began, the cell is `inside`, which marks outdated positions.
class pair_merging {
public:
    explicit pair_merging(piece_counts const& pieces) {
        // Pieces of equal count are adjacent, so the count of a position is found by searching few entries.
        std::vector<std::size_t> order(pieces.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return pieces.count(a) != pieces.count(b) ? pieces.count(a) > pieces.count(b) : a < b;
        });
        cells_.reserve(1 + pieces.bytes() + pieces.size());
        cells_.push_back(edge);
        for (std::size_t const i : order) {
            if (weights_.empty() || weights_.back().second != pieces.count(i))
                weights_.emplace_back(position_of(cells_.size()), pieces.count(i));
            for (char const c : pieces.piece(i)) cells_.push_back(static_cast<unsigned char>(c));
            cells_.push_back(edge);
        }
        for (std::size_t at = 0; at + 1 < cells_.size(); ++at) {
            if (cells_[at] == edge || cells_[at + 1] == edge) continue;
            pair_entry& entry = pairs_[key_of(cells_[at], cells_[at + 1])];
            entry.count += weight(position_of(at));
            entry.positions.push_back(position_of(at));
        }
        for (auto const& [pair, entry] : pairs_) heap_.push({entry.count, pair});
        sizes_.assign(256, 1);
    }

    // Merges the most frequent pair (ties: the lower pair) into a new token of `table`, which has the tokens made so
    // far. Returns false if no pair is left.
    bool merge_best(token_table& table) {
        while (!heap_.empty()) {
            candidate const best = heap_.top();
            heap_.pop();
            auto const found = pairs_.find(best.pair);
            if (found == pairs_.end()) continue;
            if (found->second.count != best.count) {  // it fell since it was queued
                if (found->second.count > 0) heap_.push({found->second.count, best.pair});
                continue;
            }
            auto const left = static_cast<token_id>(best.pair >> 32);
            auto const right = static_cast<token_id>(best.pair & 0xffffffffu);
            if (size_of(left) + size_of(right) > longest) continue;
            token_id const merged = table.add(std::string(table.bytes(left)) + std::string(table.bytes(right)));
            sizes_.push_back(size_of(left) + size_of(right));
            auto positions = std::move(found->second.positions);
            if (!std::is_sorted(positions.begin(), positions.end())) std::sort(positions.begin(), positions.end());
            for (std::uint32_t const at : positions) merge_at(at, left, right, merged);
            pairs_.erase(best.pair);
            offer_grown();
            return true;
        }
        return false;
    }

private:
    static constexpr std::uint32_t longest = std::uint32_t{1} << 20;  // as for a token in a file
    static constexpr token_id edge = std::numeric_limits<token_id>::min();
    static constexpr token_id inside = -1;

    using pair_key = std::uint64_t;  // left id, right id: ordered as pairs

    struct candidate {
        std::int64_t count;
        pair_key pair;
        bool operator<(candidate const& other) const {
            return count != other.count ? count < other.count : pair > other.pair;
        }
    };
    struct pair_entry {
        std::int64_t count = 0;
        std::vector<std::uint32_t> positions;  // positions where it begins, or once did
    };

    static pair_key key_of(token_id left, token_id right) {
        return static_cast<pair_key>(left) << 32 | static_cast<pair_key>(right);
    }
    static std::uint32_t position_of(std::size_t at) { return static_cast<std::uint32_t>(at); }
    [[nodiscard]] std::uint32_t size_of(token_id id) const { return sizes_[static_cast<std::size_t>(id)]; }

    // The count of the piece at a position.
    [[nodiscard]] std::int64_t weight(std::uint32_t at) const {
        auto const after = std::upper_bound(weights_.begin(), weights_.end(), at,
                                            [](std::uint32_t position, auto const& w) { return position < w.first; });
        return std::prev(after)->second;
    }

    // Merges one occurrence. Called from left to right: of three equal tokens the first two merge.
    void merge_at(std::uint32_t at, token_id left, token_id right, token_id merged) {
        if (cells_[at] != left) return;
        std::uint32_t const middle = at + size_of(left);
        if (cells_[middle] != right) return;
        std::uint32_t const end = middle + size_of(right);
        std::int64_t const count = weight(at);
        if (token_id const last = cells_[at - 1]; last != edge) {
            std::uint32_t const before = last < 0 ? at - position_of(static_cast<std::size_t>(-last)) : at - 1;
            move_count(key_of(cells_[before], left), key_of(cells_[before], merged), count, before);
        }
        if (token_id const next = cells_[end]; next != edge)
            move_count(key_of(right, next), key_of(merged, next), count, at);
        cells_[middle] = inside;
        cells_[at] = merged;
        cells_[end - 1] = -static_cast<token_id>(end - at);
    }
    void move_count(pair_key from, pair_key to, std::int64_t count, std::uint32_t at) {
        pairs_[from].count -= count;
        pair_entry& entry = pairs_[to];
        if (entry.positions.empty()) grown_.push_back(to);
        entry.count += count;
        entry.positions.push_back(at);
    }
    // Queues the pairs with the new token; only they grow.
    void offer_grown() {
        for (pair_key const pair : grown_)
            if (auto const found = pairs_.find(pair); found != pairs_.end() && found->second.count > 0)
                heap_.push({found->second.count, pair});
        grown_.clear();
    }

    std::vector<token_id> cells_;
    std::vector<std::pair<std::uint32_t, std::int64_t>> weights_;  // first position and count of each group of pieces
    std::vector<std::uint32_t> sizes_;                             // in bytes, by id
    std::unordered_map<pair_key, pair_entry, keyed_hash> pairs_;
    std::priority_queue<candidate> heap_;
    std::vector<pair_key> grown_;
};

}  // namespace calm::detail
