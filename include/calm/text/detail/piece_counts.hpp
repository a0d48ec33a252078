#pragma once
// Counts how often each piece of a text occurs, in bounded memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/text/detail/token_table.hpp"

namespace calm::detail {

// Pieces of at least two bytes, numbered in order of first addition.
class piece_counts {
public:
    // Maximum bytes of all distinct pieces together. Beyond it the rarest are dropped, all of equal count together,
    // until half is free. A dropped piece that recurs begins at 1.
    static constexpr std::size_t most_bytes = std::size_t{8} << 20;

    // Keeps at most `most` bytes of pieces, but always the latest piece.
    explicit piece_counts(std::size_t most = most_bytes) : most_(most) {}

    // Counts an occurrence of a piece; pieces of fewer than two bytes are ignored.
    void add(std::string_view piece) {
        if (piece.size() < 2) return;
        if (token_id const found = pieces_.find(piece); found >= 0) {
            ++counts_[static_cast<std::size_t>(found)];
            return;
        }
        if (bytes_ > 0 && bytes_ + piece.size() > most_) forget_the_rarest();
        pieces_.add(piece);
        counts_.push_back(1);
        bytes_ += piece.size();
    }

    // The number of distinct pieces kept.
    [[nodiscard]] std::size_t size() const { return counts_.size(); }
    // Piece i, 0 <= i < size(); valid until the next add.
    [[nodiscard]] std::string_view piece(std::size_t i) const { return pieces_.bytes(static_cast<token_id>(i)); }
    // How often piece i was added since it was last dropped.
    [[nodiscard]] std::int64_t count(std::size_t i) const { return counts_[i]; }
    // Total bytes of the pieces kept.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    // The number of times that a piece was dropped.
    [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }

private:
    void forget_the_rarest() {
        std::vector<std::pair<std::int64_t, std::size_t>> sizes(size());
        for (std::size_t i = 0; i < size(); ++i) sizes[i] = {-counts_[i], piece(i).size()};
        std::sort(sizes.begin(), sizes.end());
        std::size_t kept = 0;
        std::size_t room = most_ / 2;
        while (kept < sizes.size() && sizes[kept].second <= room) room -= sizes[kept++].second;
        std::int64_t const rarest = kept < sizes.size() ? -sizes[kept].first : 0;
        piece_counts left(most_);
        for (std::size_t i = 0; i < size(); ++i) {
            if (counts_[i] <= rarest) continue;
            left.pieces_.add(piece(i));
            left.counts_.push_back(counts_[i]);
            left.bytes_ += piece(i).size();
        }
        left.forgotten_ = forgotten_ + (size() - left.size());
        *this = std::move(left);
    }

    std::size_t most_;
    token_table pieces_;
    std::vector<std::int64_t> counts_;
    std::size_t bytes_ = 0;
    std::uint64_t forgotten_ = 0;
};

}  // namespace calm::detail
