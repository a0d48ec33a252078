#pragma once
// How the parameters of a model are shared out among ranks, and in which pieces shares go to others.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "calm/train/block/packing.hpp"
#include "calm/train/block/ranges.hpp"
#include "calm/train/shared_work.hpp"

namespace calm::detail {

// A piece of each rank's share, which go at once: side by side, this rank's first.
struct round_of_pieces {
    std::vector<shared_work::part> pieces;  // (R) where each is among them
    index_t begin = 0;                      // of its parts, this rank's first
    index_t own_end = 0;
    index_t end = 0;
    index_t size = 0;  // elements of all pieces together
};

// What goes at some time, in rounds.
struct all_pieces {
    std::vector<packed_part> parts;
    std::vector<round_of_pieces> rounds;
};

// All parameters as one row of elements, in their order, cut into a share for each rank: whole ranges
// (block/ranges.hpp).
class share_layout {
public:
    using part = shared_work::part;

    // Of parameters of these sizes, for a rank of so many; a share goes in pieces of at most `piece` elements.
    share_layout(std::vector<index_t> const& sizes, int rank, int ranks, index_t piece) :
        rank_(static_cast<std::size_t>(rank)), piece_(piece) {
        for (auto const size : sizes) {
            tensors_.push_back({size, elements_});
            elements_ += size;
        }
        ranges_ = ranges_of(tensors_);
        cut(ranks);
    }

    [[nodiscard]] index_t elements() const { return elements_; }                  // of all
    [[nodiscard]] index_t size(std::size_t i) const { return tensors_[i].size; }  // of parameter i
    [[nodiscard]] index_t piece() const { return piece_; }                        // the most of a share that go at once
    [[nodiscard]] std::vector<parameter_range> const& ranges() const { return ranges_; }
    // (R + 1) the first range of each share.
    [[nodiscard]] std::vector<std::size_t> const& first_range() const { return first_range_; }
    // What this rank's share has of parameter i.
    [[nodiscard]] part own(std::size_t i) const {
        auto const& one = tensors_[i];
        auto const within = [&](index_t at) { return std::clamp<index_t>(at - one.place, 0, one.size); };
        return {within(cuts_[rank_]), within(cuts_[rank_ + 1])};
    }
    // What there is to send of the parameters that are marked.
    [[nodiscard]] all_pieces pieces_of(std::vector<bool> const& marked) const {
        all_pieces all;
        for (index_t number = 0; number < rounds_; ++number) {
            auto& round = all.rounds.emplace_back();
            round.pieces.resize(cuts_.size() - 1);
            round.begin = std::ssize(all.parts);
            add_piece(all, number, rank_, marked);
            round.own_end = std::ssize(all.parts);
            for (std::size_t r = 0; r < round.pieces.size(); ++r)
                if (r != rank_) add_piece(all, number, r, marked);
            round.end = std::ssize(all.parts);
        }
        return all;
    }

private:
    struct tensor_place {
        index_t size;
        index_t place;  // of its first element in the row
    };

    // Shares of about the same size: a range belongs to the rank whose equal part it begins in.
    void cut(index_t ranks) {
        auto const begin_of = [&](parameter_range const& range) {
            return tensors_[static_cast<std::size_t>(range.slot)].place + range.begin;
        };
        index_t most = 0;
        for (std::size_t r = 0, i = 0; r <= static_cast<std::size_t>(ranks); ++r) {
            auto const number = static_cast<index_t>(r);
            while (i < ranges_.size() && (number == ranks || begin_of(ranges_[i]) * ranks < number * elements_)) ++i;
            first_range_.push_back(i);
            cuts_.push_back(i < ranges_.size() ? begin_of(ranges_[i]) : elements_);
            if (r > 0) most = std::max(most, cuts_[r] - cuts_[r - 1]);
        }
        piece_ = std::min(piece_, most);
        rounds_ = piece_ > 0 ? (most + piece_ - 1) / piece_ : 0;
    }
    // To the last round, which has that number: what rank r's share has in it.
    void add_piece(all_pieces& all, index_t number, std::size_t r, std::vector<bool> const& marked) const {
        auto& round = all.rounds.back();
        round.pieces[r].begin = round.size;
        index_t const end = cuts_[r + 1];
        index_t const begin = std::min(cuts_[r] + number * piece_, end);
        for (auto const& range : std::span(ranges_).subspan(first_range_[r], first_range_[r + 1] - first_range_[r])) {
            auto const slot = static_cast<std::size_t>(range.slot);
            index_t const place = tensors_[slot].place;
            index_t const from = std::max(range.begin, begin - place);
            index_t const to = std::min(range.end, std::min(begin + piece_, end) - place);
            if (from >= to || !marked[slot]) continue;
            all.parts.push_back({range.slot, from, to, round.size});
            round.size += to - from;
        }
        round.pieces[r].end = round.size;
    }

    std::size_t rank_;
    std::vector<tensor_place> tensors_;
    std::vector<parameter_range> ranges_;
    index_t elements_ = 0;
    std::vector<index_t> cuts_;  // (R + 1) in the row
    std::vector<std::size_t> first_range_;
    index_t piece_;
    index_t rounds_ = 0;
};

}  // namespace calm::detail
